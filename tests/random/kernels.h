/* SPDX-License-Identifier: MIT
 *
 * All that the programs need beyond CUDA's own calls, and that is made differently for the simulated CUDA
 * (kernels_sim.c) and for a GPU (kernels_cuda.cu): kernels that stamp and check blocks, streams that no hook has seen,
 * and a judge of races, which a GPU does not have.
 */
#ifndef RANDOM_KERNELS_H
#define RANDOM_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { KERNEL_TOUCHES_MAX = 4, KERNEL_WRONG_MAX = 16 };

struct kernel_touch {
    uint64_t address, bytes;
    uint32_t block;    /* for reports */
    uint32_t expected; /* 0: what it holds is not checked */
    uint32_t stamp;    /* 0: it is only read */
};

struct kernel {
    struct kernel_touch touches[KERNEL_TOUCHES_MAX];
    uint32_t touch_count;
    uint32_t number; /* of its operation, for reports */
    uint32_t microseconds;
    uint32_t until_released; /* where it can: goes on until kernels_release is called */
};

/* A block that did not hold what it should. */
struct kernel_wrong {
    uint32_t number, block, expected;
    uint32_t should, is; /* one byte of it */
    uint64_t offset;
};

/* `stream` is a cudaStream_t, or 1 or 2 for the legacy stream and the thread's own. A cudaError_t. */
int kernels_launch(const struct kernel *kernel, void *stream);
void kernels_release(void);

/* What was found wrong in the current context since it was last asked, at most KERNEL_WRONG_MAX. All work must have
 * ended. */
size_t kernels_wrong(struct kernel_wrong *out);

/* False where there are none: the caller makes an ordinary one. */
bool kernels_unseen_stream_create(void **stream);
void kernels_unseen_stream_destroy(void *stream);

/* What the judge of races is told, and when: after an allocation, before a free; the stream as for a launch. */
void kernels_judge_begin(void);
void kernels_allocator_entered(void);
void kernels_allocator_left(void);
void kernels_allocated(uint64_t address, uint64_t bytes);
void kernels_allocated_async(uint64_t address, uint64_t bytes, void *stream);
void kernels_freed(uint64_t address);
void kernels_freed_async(uint64_t address, void *stream);
/* How many races there were, and the `i`-th as text. */
size_t kernels_races(void);
bool kernels_race_text(size_t i, char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif
