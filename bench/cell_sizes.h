/* SPDX-License-Identifier: MIT
 *
 * The sizes that the loads are made of: those of all allocations of some traces.
 */
#ifndef BENCH_CELL_SIZES_H
#define BENCH_CELL_SIZES_H

#include <stdbool.h>
#include <stddef.h>

struct cell_sizes {
    size_t *values, count; /* values: to be freed by free() */
};

/* Those of `count` traces. False: one cannot be read, or none holds an allocation, and stderr says which or so, after
 * the name of the program. */
bool cell_sizes_read(struct cell_sizes *sizes, char *const *paths, size_t count, const char *program);

#endif
