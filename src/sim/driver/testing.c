/* SPDX-License-Identifier: MIT
 *
 * The test interface, sim.h.
 */
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "../sim.h"

static struct operation_program *program_new(const struct sim_kernel *kernel) {
    struct operation_program *const program = malloc(sizeof(*program) + kernel->argument_bytes);
    if (program == NULL) return NULL;
    atomic_init(&program->references, 1);
    program->run = kernel->run;
    program->name = kernel->name;
    program->number = kernel->number;
    if (kernel->argument_bytes > 0) memcpy(program->argument, kernel->argument, kernel->argument_bytes);
    return program;
}

static CUresult kernel_launch(struct thread *thread, const struct sim_kernel *kernel, CUstream handle) {
    struct stream *stream;
    const CUresult result = stream_named(thread, handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (kernel == NULL) return CUDA_ERROR_INVALID_VALUE;
    struct operation *const operation = operation_new(OPERATION_KERNEL);
    if (operation == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    operation->kernel.microseconds = kernel->microseconds;
    operation->kernel.release_round = kernel->until_released ? scheduler_release_round() : 0;
    if (kernel->run != NULL || kernel->name != NULL) {
        operation->kernel.program = program_new(kernel);
        if (operation->kernel.program == NULL) {
            operation_drop(operation);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    for (size_t i = 0; i < kernel->range_count; i++) {
        const struct sim_range *const range = &kernel->ranges[i];
        if (operation_uses(operation, range->address, range->bytes, range->writes)) continue;
        operation_drop(operation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return launch_submit(stream, operation);
}

int sim_launch(const struct sim_kernel *kernel, void *stream) {
    return (int)kernel_launch(entry_current_thread(), kernel, (CUstream)stream);
}

void sim_release_kernels(void) {
    scheduler_release_kernels();
}

int sim_stream_create(void **stream, unsigned flags) {
    return (int)stream_create(entry_current_thread(), (CUstream *)stream, flags, 0);
}

int sim_stream_destroy(void *stream) {
    return (int)stream_destroy((CUstream)stream);
}

uint64_t sim_calls(const char *name) {
    uint64_t calls = 0;
    for (unsigned i = 0; i < NAME_COUNT; i++) {
        const bool exact = strcmp(name, name_table[i].symbol) == 0;
        if (exact && strcmp(name, name_table[i].base) != 0) return entry_count((enum driver_name)i);
        if (strcmp(name, name_table[i].base) == 0) calls += entry_count((enum driver_name)i);
    }
    return calls;
}

void sim_reset_calls(void) {
    entry_counts_reset();
}

uint64_t sim_unsimulated_calls(void) {
    uint64_t calls = 0;
    for (unsigned i = 0; i < NAME_COUNT; i++)
        if (!names_is_simulated((enum driver_name)i)) calls += entry_count((enum driver_name)i);
    return calls;
}

const char *sim_unsimulated_name(void) {
    for (unsigned i = 0; i < NAME_COUNT; i++)
        if (!names_is_simulated((enum driver_name)i) && entry_count((enum driver_name)i) > 0)
            return name_table[i].symbol;
    return NULL;
}

uint64_t sim_bytes_in_use(int device) {
    const struct device *const known = device_of(device);
    return known != NULL ? atomic_load_explicit(&known->used_bytes, memory_order_relaxed) : 0;
}

size_t sim_pending(void *context) {
    struct context *named;
    if (context_named(entry_current_thread(), (CUcontext)context, &named) != CUDA_SUCCESS) return 0;
    return atomic_load_explicit(&named->pending, memory_order_acquire);
}
