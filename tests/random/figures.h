/* SPDX-License-Identifier: MIT
 *
 * The pool's figures of this very process, read as any reader would, and whether they add up.
 */
#ifndef RANDOM_FIGURES_H
#define RANDOM_FIGURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(name): counters summed over all pools that there ever were. */
#define FIGURES_SUMMED(X) \
    X(fences)             \
    X(waits)              \
    X(segment_allocs)     \
    X(oom_retries)        \
    X(allocs)             \
    X(hits)               \
    X(frees)

struct figures {
#define FIGURES_FIELD(name) uint64_t name;
    FIGURES_SUMMED(FIGURES_FIELD)
#undef FIGURES_FIELD
};

/* False when the process has none: it runs natively, or made no call. */
bool figures_open(void);

/* Takes note of what the counters say now: before anything that ends a pool, and at the end. */
void figures_note(void);
const struct figures *figures_noted(void);

/* At rest, when the program has freed everything. True when something does not add up, with a sentence. */
bool figures_broken(char *text, size_t size);

#endif
