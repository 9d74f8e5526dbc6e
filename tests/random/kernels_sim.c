/* SPDX-License-Identifier: MIT
 *
 * Kernels for the simulated CUDA: they run on its threads, and its race detector is the judge.
 */
#include "kernels.h"

#include <pthread.h>

#include "sim.h"
#include "stamp.h"

static pthread_mutex_t wrong_lock = PTHREAD_MUTEX_INITIALIZER;
static struct kernel_wrong wrongs[KERNEL_WRONG_MAX];
static size_t wrong_count;

static void check(const struct kernel *kernel, const struct kernel_touch *touch, const unsigned char *memory) {
    const uint64_t samples = stamp_samples(touch->bytes);
    for (uint64_t i = 0; i < samples; i++) {
        const uint64_t offset = stamp_sample(touch->bytes, i);
        const unsigned char should = stamp_byte(touch->expected, offset);
        if (memory[offset] == should) continue;
        pthread_mutex_lock(&wrong_lock);
        if (wrong_count < KERNEL_WRONG_MAX)
            wrongs[wrong_count++] = (struct kernel_wrong){.number = kernel->number,
                                                          .block = touch->block,
                                                          .expected = touch->expected,
                                                          .should = should,
                                                          .is = memory[offset],
                                                          .offset = offset};
        pthread_mutex_unlock(&wrong_lock);
        return;
    }
}

static void run(void *argument, void *const *pointers) {
    const struct kernel *kernel = argument;
    for (uint32_t i = 0; i < kernel->touch_count; i++) {
        const struct kernel_touch *touch = &kernel->touches[i];
        unsigned char *memory = pointers[i];
        if (touch->expected != 0) check(kernel, touch, memory);
        if (touch->stamp == 0) continue;
        const uint64_t samples = stamp_samples(touch->bytes);
        for (uint64_t k = 0; k < samples; k++) {
            const uint64_t offset = stamp_sample(touch->bytes, k);
            memory[offset] = stamp_byte(touch->stamp, offset);
        }
    }
}

int kernels_launch(const struct kernel *kernel, void *stream) {
    struct sim_range ranges[KERNEL_TOUCHES_MAX];
    for (uint32_t i = 0; i < kernel->touch_count; i++)
        ranges[i] = (struct sim_range){.address = kernel->touches[i].address,
                                       .bytes = kernel->touches[i].bytes,
                                       .writes = kernel->touches[i].stamp != 0};
    const struct sim_kernel launched = {.microseconds = kernel->until_released ? 0 : kernel->microseconds,
                                        .until_released = kernel->until_released,
                                        .ranges = ranges,
                                        .range_count = kernel->touch_count,
                                        .run = run,
                                        .argument = kernel,
                                        .argument_bytes = sizeof *kernel,
                                        .name = "operation",
                                        .number = kernel->number};
    return sim_launch(&launched, stream);
}

void kernels_release(void) {
    sim_release_kernels();
}

size_t kernels_wrong(struct kernel_wrong *out) {
    pthread_mutex_lock(&wrong_lock);
    const size_t count = wrong_count;
    for (size_t i = 0; i < count; i++) out[i] = wrongs[i];
    wrong_count = 0;
    pthread_mutex_unlock(&wrong_lock);
    return count;
}

bool kernels_unseen_stream_create(void **stream) {
    return sim_stream_create(stream, 0) == 0;
}

void kernels_unseen_stream_destroy(void *stream) {
    sim_stream_destroy(stream);
}

void kernels_judge_begin(void) {
    sim_races_start();
    sim_races_all_noted();
}

void kernels_allocator_entered(void) {
    sim_allocator_entered();
}

void kernels_allocator_left(void) {
    sim_allocator_left();
}

void kernels_allocated(uint64_t address, uint64_t bytes) {
    sim_block_allocated(address, bytes);
}

void kernels_allocated_async(uint64_t address, uint64_t bytes, void *stream) {
    sim_block_allocated_async(address, bytes, stream);
}

void kernels_freed(uint64_t address) {
    sim_block_freed(address);
}

void kernels_freed_async(uint64_t address, void *stream) {
    sim_block_freed_async(address, stream);
}

size_t kernels_races(void) {
    return sim_races(NULL, 0);
}

bool kernels_race_text(size_t i, char *text, size_t size) {
    struct sim_race races[KERNEL_WRONG_MAX];
    const size_t found = sim_races(races, KERNEL_WRONG_MAX);
    if (i >= found || i >= KERNEL_WRONG_MAX) return false;
    sim_race_text(&races[i], text, size);
    return true;
}
