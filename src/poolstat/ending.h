/* SPDX-License-Identifier: MIT
 *
 * The orderly end of what runs until it is told to stop: SIGINT and SIGTERM are noted, and let in only while we wait,
 * so that nothing is cut off in its midst and no signal is missed.
 */
#ifndef POOLSTAT_ENDING_H
#define POOLSTAT_ENDING_H

#include <stdbool.h>
#include <stdint.h>

void ending_watch(void); /* from now on; a signal that was ignored before stays so */
bool ending_came(void);

/* Until `fd` can be read (−1: none), so many nanoseconds have passed (UINT64_MAX: any), or the end has come. */
void ending_wait(int fd, uint64_t ns);

#endif
