/* SPDX-License-Identifier: MIT
 *
 * Running a program as a child that notices as little as possible of its parent.
 */
#ifndef POOLSTAT_SUPERVISE_H
#define POOLSTAT_SUPERVISE_H

#include "watch.h"

struct outcome {
    int error;  /* errno, when it could not be executed or started at all; else 0 */
    int status; /* as waitpid gives it */
    uint64_t ran_ns;
};

/* Runs argv[0] to its end, and keeps its segments in `watch`, which was started. */
void supervise(char **argv, struct watch *watch, struct outcome *outcome);

#endif
