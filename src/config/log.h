/* SPDX-License-Identifier: MIT
 *
 * The log: one line per call, formatted on the stack and written with a single write(2), so that it neither allocates
 * nor recurses. Silent unless POOL_LOG asks, but for what must not go unsaid. Keeps errno.
 */
#ifndef POOLCUDA_LOG_H
#define POOLCUDA_LOG_H

/* LOG_ALWAYS: a variable asks for what cannot be done. */
enum log_level { LOG_ALWAYS = 0, LOG_WARNING = 1, LOG_EVENT = 2, LOG_ALL = 3 };

/* At the process's first call: a POOL_LOG_FILE that could not be opened costs one line on stderr, as a bad value does,
 * also where nothing will be logged; none where POOL_LOG=0 is set. Later calls do nothing. */
void log_begin(void);

/* 1 when lines of this level are wanted: guard the making of costly arguments with it. */
int log_wants(enum log_level level);

void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
