/* SPDX-License-Identifier: MIT
 *
 * Runs this very program once more, with other arguments and another environment, for what a process can find out only
 * at its start: without the pool, or with another setting of it.
 */
#ifndef BENCH_OWN_COPY_H
#define BENCH_OWN_COPY_H

#include <stdbool.h>
#include <stddef.h>

struct own_copy {
    char *const *arguments; /* argv[0] included; ends with NULL */
    bool preload;           /* false: without LD_PRELOAD */
    const char *setting;    /* NAME=VALUE, or NULL: one more variable of its environment */
};

/* What the copy writes to stdout goes to `answer`, at most `size` bytes. The number of bytes; 0 when it could not be
 * run or failed. */
size_t own_copy_run(const struct own_copy *copy, void *answer, size_t size);

#endif
