/* SPDX-License-Identifier: MIT
 *
 * Plays an allocation trace with the CUDA runtime: each allocation is a cudaMalloc or cudaMallocAsync, work on the
 * block in a stream (a memset of the whole, or on the simulated CUDA a kernel of a stated duration; and two stamps),
 * each free a read of the stamps in that stream and a cudaFree or cudaFreeAsync. The stamps are compared when the trace
 * has been played. On the default stream the player waits for its work before each free, so that what a free takes is
 * its own; on streams nothing waits for the device but what the runtime does itself.
 *
 * With several threads or streams the trace's blocks are dealt to them in turn: a synthetic load, no recorded one. Each
 * thread plays the events of its own blocks in their order, and nothing orders threads or streams among themselves. A
 * trace that names several streams has its blocks on those instead.
 */
#ifndef BENCH_PLAYER_H
#define BENCH_PLAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "own_figures.h"
#include "trace.h"

enum { PLAYER_MESSAGES = 5 };

struct player_options {
    unsigned threads; /* at least 1 */
    unsigned streams; /* of the player's own; 0: the default stream */
    bool async;       /* cudaMallocAsync and cudaFreeAsync */
    int kernel_us; /* duration of the kernels; 0: memsets instead; −1: 10 on streams of the simulated CUDA, else 0 */
    unsigned repeat;  /* times to play the trace, at least 1 */
    double scale;     /* of the sizes */
    bool work;        /* false: no work and no stamps */
    double hold_s;    /* wait so long at the end, with the blocks that are then live */
    int wait_fd;      /* likewise until this descriptor can be read or is closed by its writer; −1: do not */
    double *repeat_s; /* out: seconds of each repetition, `repeat` of them */
};

struct player_memory {
    size_t free_bytes, total_bytes;
};

struct player_report {
    uint64_t allocs, frees, memsets, kernels;    /* that succeeded */
    uint64_t alloc_failures;                     /* their frees are skipped */
    uint64_t stamps_checked;                     /* blocks */
    uint64_t stamps_violated;                    /* blocks whose stamp another one overwrote */
    uint64_t overlaps;                           /* allocations whose addresses a live block had */
    uint64_t crossed;                            /* allocations of memory that another stream's block had before */
    uint64_t other_errors;                       /* calls that failed, other than allocations */
    uint64_t alloc_ns, free_ns;                  /* spent in allocations and frees, over all threads */
    struct player_memory before, at_peak, after; /* cudaMemGetInfo; at_peak: when the trace first reaches its peak */
    unsigned kernel_us;                          /* of each kernel; 0: none was launched */
    bool pooled;
    struct own_figures figures; /* of the pool, when all was played; valid when pooled */
    bool simulated;
    uint64_t events_first, events_later; /* created in the first repetition, and since; valid when simulated */
    size_t message_count;
    char messages[PLAYER_MESSAGES][200]; /* the first things that went wrong */
};

/* False: it could not be played at all, and messages[0] says why. */
bool player_play(const struct trace *trace, const struct player_options *options, struct player_report *report);

#endif
