/* SPDX-License-Identifier: MIT
 *
 * The calls that every door makes, so that all must show the same counts: 7 allocations and 7 frees, of which 1 takes a
 * segment from the driver (16 MiB; all of it fits in there) and 6 are served from it.
 */
#ifndef PRELOAD_SEQUENCE_H
#define PRELOAD_SEQUENCE_H

#include <stdio.h>
#include <stddef.h>

#define MIB ((size_t)1 << 20)

/* Say that the figures can be read now, and wait until they have been. */
static inline void wait_for_reader(void) {
    puts("ready");
    fflush(stdout);
    while (getchar() != '\n' && !feof(stdin)) continue;
}

/* 0, or the number of the call that failed. */
static inline int run_sequence(int (*take)(void **, size_t), int (*give_back)(void *)) {
    void *a, *b, *c, *d, *e, *f, *g;
    if (take(&a, MIB)) return 1; /* the miss */
    if (take(&b, MIB)) return 2;
    if (take(&c, 1000)) return 3;
    if (give_back(b)) return 4;
    if (take(&d, MIB)) return 5;
    if (give_back(a)) return 6;
    if (give_back(d)) return 7;
    if (take(&e, 5 * MIB)) return 8;
    if (take(&f, 1)) return 9;
    if (take(&g, 3 * MIB)) return 10;
    if (give_back(c)) return 11;
    if (give_back(e)) return 12;
    if (give_back(f)) return 13;
    if (give_back(g)) return 14;
    return 0;
}

#endif
