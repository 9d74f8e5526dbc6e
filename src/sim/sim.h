/* SPDX-License-Identifier: MIT
 *
 * The test interface of the simulated driver, exported by its libcuda.so.1 beside the real names: kernels of a stated
 * duration that touch stated memory, streams that no hook has seen, what was called how often, and how much memory is
 * in use. Results are CUresult codes. A process that also runs on a real driver finds these names with dlsym.
 */
#ifndef SIM_H
#define SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sim_range {
    uint64_t address;
    size_t bytes;
    bool writes; /* else reads */
};

struct sim_kernel {
    uint32_t microseconds;
    bool until_released; /* goes on until sim_release_kernels is called after its launch */
    const struct sim_range *ranges;
    size_t range_count;
};

/* Launches it on `stream`, a CUstream; 0 is the legacy stream. A range that the stream's context may not use when the
 * kernel runs fails the context with 700, as a GPU does. */
int sim_launch(const struct sim_kernel *kernel, void *stream);

/* Ends the kernels launched until now that wait for it. */
void sim_release_kernels(void);

/* A stream of the current context, made and destroyed by no call of the driver's interface. flags as for
 * cuStreamCreate. */
int sim_stream_create(void **stream, unsigned flags);
int sim_stream_destroy(void *stream);

/* Calls since the start or the last reset. `name` as exported ("cuMemAlloc_v2"), or without its suffixes for all forms
 * of it ("cuMemAlloc"). */
uint64_t sim_calls(const char *name);
void sim_reset_calls(void);

/* Calls of names that are not simulated, which answered 801; and the first such name, NULL if there is none. */
uint64_t sim_unsimulated_calls(void);
const char *sim_unsimulated_name(void);

/* Device memory that is taken, as cuMemGetInfo sees it; for an unknown device 0. */
uint64_t sim_bytes_in_use(int device);

/* Work given to the context that is not completed; NULL is the current one. */
size_t sim_pending(void *context);

#ifdef __cplusplus
}
#endif

#endif
