/* SPDX-License-Identifier: MIT
 *
 * How much host memory the process costs, and how much of that is the pool's.
 *
 * Counted is what is the process's own: anonymous pages (heap, mappings, changed pages of libraries) as the kernel
 * counts them in smaps_rollup, to the page; and the figures' segment. Not the code of libraries, which processes share,
 * nor device memory, which the simulated CUDA keeps in a shared mapping.
 */
#ifndef BENCH_HOST_MEMORY_H
#define BENCH_HOST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* False: the kernel does not tell. */
bool host_memory_now(uint64_t *bytes);

/* Allocate `count` blocks of 512 bytes, measure, free them. False: something failed. */
bool host_memory_per_block(size_t count, double *bytes_per_block);

/* What the pool costs before it holds much: a copy of this program (run with `argument`, so that it calls
 * host_memory_report) under the pool, less one without it. False: one of them failed. */
bool host_memory_fixed(const char *argument, int64_t *bytes);

/* In that copy: allocate one block and print the process's bytes. Its exit status. */
int host_memory_report(void);

#endif
