/* SPDX-License-Identifier: MIT
 *
 * For commands about one process: that of a PID, or the one that the options choose.
 */
#ifndef POOLSTAT_ONE_H
#define POOLSTAT_ONE_H

#include "collect.h"
#include "poolstat.h"

/* The answer about a process of which there is a copy. Returns the exit code. */
typedef int one_answer(const struct options *options, const struct process *process, void *context);

/* Calls `answer` as often as the options say; `argv` is a command's: its name, and perhaps a PID. Reports what is
 * wrong. Returns the exit code. */
int one_repeat(const struct options *options, int argc, char **argv, one_answer *answer, void *context);

#endif
