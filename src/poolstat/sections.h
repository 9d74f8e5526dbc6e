/* SPDX-License-Identifier: MIT
 *
 * Everything about one process as sections of text, with units and one line of help for each figure.
 */
#ifndef POOLSTAT_SECTIONS_H
#define POOLSTAT_SECTIONS_H

#include "collect.h"
#include "poolstat.h"

/* `process` has a segment. */
void sections_print(const struct options *options, const struct process *process);

#endif
