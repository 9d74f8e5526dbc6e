/* SPDX-License-Identifier: MIT
 *
 * Which processes and devices a command is about: what -p, -u, -g, -c and --all say, and their application to what was
 * collected.
 */
#ifndef POOLSTAT_CHOOSE_H
#define POOLSTAT_CHOOSE_H

#include "collect.h"
#include "poolstat.h"

/* Note the argument of an option. NULL, or what is wanted instead. */
const char *choose_pids(struct choice *choice, const char *text);
const char *choose_user(struct choice *choice, const char *text);
const char *choose_gpu(struct choice *choice, const char *text);

bool choose_is_narrowed(const struct choice *choice); /* by anything but --all */

/* Collects, and leaves out the processes that were not chosen, and the pools of other devices. One without a copy has
 * no device and no command that could be chosen. Ended processes are read only with --all. */
void choose_collect(const struct choice *choice, struct collection *collection);

#endif
