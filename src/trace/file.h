/* SPDX-License-Identifier: MIT
 *
 * The file of a trace: found a name for, made, and appended to block by block. One thread at a time; inside a guard.
 * Internal to src/trace.
 */
#ifndef POOLCUDA_TRACE_FILE_H
#define POOLCUDA_TRACE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "poolcuda/trace.h"

enum file_result {
    FILE_WRITTEN,
    FILE_MISSED, /* not this time: nothing was written */
    FILE_FAILED  /* nothing more will be: the log says why */
};

/* Make the file, with its header. */
enum file_result file_create(enum poolcuda_trace_counter counter, unsigned time_shift);

/* Append a whole block, which gets its number here. */
enum file_result file_append(struct poolcuda_trace_block *block);

/* One value of the counter and the clock. */
struct poolcuda_trace_moment file_moment(enum poolcuda_trace_counter counter);

/* In a forked child: the file stays its parent's. */
void file_forget(void);

#endif
