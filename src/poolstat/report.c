/* SPDX-License-Identifier: MIT
 *
 * The two forms of an error.
 */
#include "report.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "json.h"

int report(const struct options *options, enum code code, const char *format, ...) {
    char message[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    report_note("%s", message);
    if (options->json) json_print(json_error_document(code, message));
    return code;
}

void report_note(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("poolstat: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}
