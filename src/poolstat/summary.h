/* SPDX-License-Identifier: MIT
 *
 * What a program did with its device memory, said when it has ended.
 */
#ifndef POOLSTAT_SUMMARY_H
#define POOLSTAT_SUMMARY_H

#include "poolstat.h"
#include "supervise.h"

/* On stderr: stdout is the program's. */
void summary_print(const char *command, const struct watch *watch, const struct outcome *outcome);

#endif
