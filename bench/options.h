/* SPDX-License-Identifier: MIT
 *
 * Values of the options of the programs that measure. A wrong one ends the program with status 2 and a line on stderr
 * that says what was expected.
 */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include <stddef.h>

/* A multiple of `unit` from there to `most`. */
size_t options_number(const char *option, const char *text, size_t unit, size_t most);

/* Such numbers, a comma between them, at most `room` of them. How many. */
size_t options_numbers(const char *option, const char *text, size_t unit, size_t most, size_t *numbers, size_t room);

/* The place of `text` among `names`. */
size_t options_name(const char *option, const char *text, const char *const *names, size_t count);

#endif
