/* SPDX-License-Identifier: MIT
 *
 * Who a process is, from /proc: start time, pid namespace, command. Allocates nothing. Internal to src/stats.
 */
#ifndef POOLCUDA_STATS_IDENTITY_H
#define POOLCUDA_STATS_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Start time in clock ticks after boot; 0 when it cannot be read. */
uint64_t identity_own_start_ticks(void);

/* Field 22 of the text of a /proc/PID/stat, whose second field is a command in brackets that may hold blanks and
 * brackets; 0 when the text is not such a line. */
uint64_t identity_parse_start_ticks(const char *stat, size_t length);

uint64_t identity_pid_namespace(void); /* inode of our pid namespace, 0 when unknown */

/* Base name of the executable, empty when unknown. Not by two threads at once. */
void identity_command(char *name, size_t size);

/* Is the process that had `pid` (in our namespace) and began at `start_ticks` surely gone? In doubt: no. */
bool identity_gone(uint32_t pid, uint64_t start_ticks);

#endif
