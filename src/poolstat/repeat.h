/* SPDX-License-Identifier: MIT
 *
 * -d, -n and -1: an answer given again and again.
 */
#ifndef POOLSTAT_REPEAT_H
#define POOLSTAT_REPEAT_H

#include "poolstat.h"

#define REPEAT_LEAST_NS UINT64_C(100000000)
#define REPEAT_DEFAULT_NS UINT64_C(1000000000) /* of -n without -d */

bool repeat_is_asked(const struct options *options);

/* Calls `answer` once, or as often as the options say, `turn` counting from 0. Ends before at an answer that no later
 * one can better: CODE_USAGE, CODE_GONE, CODE_FAILED, and where not `patient`, any but CODE_OK; when nobody reads
 * stdout any more; and at SIGINT, SIGTERM or SIGHUP, of which the process then dies. Returns the last code. */
int repeat(const struct options *options, bool patient,
           int (*answer)(const struct options *options, uint64_t turn, void *context), void *context);

#endif
