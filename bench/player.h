/* SPDX-License-Identifier: MIT
 *
 * Plays an allocation trace with the CUDA runtime: each allocation is a cudaMalloc, work on the block (a memset of the
 * whole and two stamps), each free a check of the stamps and a cudaFree.
 *
 * With several threads the trace's blocks are dealt to them in turn, each thread plays the events of its own blocks in
 * their order, and nothing orders the threads among themselves: a synthetic load, no recorded one.
 */
#ifndef BENCH_PLAYER_H
#define BENCH_PLAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace.h"

enum { PLAYER_MESSAGES = 5 };

struct player_options {
    unsigned threads; /* at least 1 */
    unsigned repeat;  /* times to play the trace, at least 1 */
    double scale;     /* of the sizes */
    bool work;        /* false: neither memset nor stamps */
    double hold_s;    /* wait so long at the end, with the blocks that are then live */
    int wait_fd;      /* likewise until this descriptor can be read or is closed by its writer; −1: do not */
    double *repeat_s; /* out: seconds of each repetition, `repeat` of them */
};

struct player_memory {
    size_t free_bytes, total_bytes;
};

struct player_report {
    uint64_t allocs, frees, memsets;             /* that succeeded */
    uint64_t alloc_failures;                     /* their frees are skipped */
    uint64_t stamps_checked;                     /* blocks */
    uint64_t stamps_violated;                    /* blocks whose stamp another one overwrote */
    uint64_t overlaps;                           /* allocations whose addresses a live block had */
    uint64_t other_errors;                       /* calls other than cudaMalloc that failed */
    uint64_t alloc_ns, free_ns;                  /* spent in cudaMalloc and cudaFree, over all threads */
    struct player_memory before, at_peak, after; /* cudaMemGetInfo; at_peak: when the trace first reaches its peak */
    size_t message_count;
    char messages[PLAYER_MESSAGES][200]; /* the first things that went wrong */
};

/* False: it could not be played at all, and messages[0] says why. */
bool player_play(const struct trace *trace, const struct player_options *options, struct player_report *report);

#endif
