/* SPDX-License-Identifier: MIT
 *
 * Values of options; see options.h.
 */
#include "options.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads one number; *end is behind it. */
static bool read_number(const char *text, char **end, size_t unit, size_t most, size_t *number) {
    errno = 0;
    const long value = strtol(text, end, 10);
    *number = (size_t)value;
    return *end != text && errno == 0 && value > 0 && *number <= most && *number % unit == 0;
}

static void say(const char *option, const char *text, const char *what) {
    fprintf(stderr, "%s: %s is \"%s\": expected %s", program_invocation_short_name, option, text, what);
}

/* The end of such a line, and of the program. */
__attribute__((noreturn)) static void end_with_range(size_t unit, size_t most) {
    fprintf(stderr, " from %zu to %zu", unit, most);
    if (unit > 1) fprintf(stderr, ", multiples of %zu", unit);
    fputc('\n', stderr);
    exit(2);
}

size_t options_number(const char *option, const char *text, size_t unit, size_t most) {
    char *end;
    size_t number;
    if (read_number(text, &end, unit, most, &number) && *end == '\0') return number;
    say(option, text, "a whole number");
    end_with_range(unit, most);
}

size_t options_numbers(const char *option, const char *text, size_t unit, size_t most, size_t *numbers, size_t room) {
    const char *rest = text;
    for (size_t count = 0; count < room;) {
        char *end;
        if (!read_number(rest, &end, unit, most, &numbers[count])) break;
        count++;
        if (*end == '\0') return count;
        if (*end != ',') break;
        rest = end + 1;
    }
    say(option, text, "whole numbers, a comma between them, at most ");
    fprintf(stderr, "%zu of them,", room);
    end_with_range(unit, most);
}

size_t options_name(const char *option, const char *text, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(text, names[i]) == 0) return i;
    say(option, text, "");
    for (size_t i = 0; i < count; i++) fprintf(stderr, "%s%s", i == 0 ? "" : i + 1 < count ? ", " : " or ", names[i]);
    fputc('\n', stderr);
    exit(2);
}
