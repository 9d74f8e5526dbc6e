/* SPDX-License-Identifier: MIT
 *
 * Allocation that ends the program when there is no memory.
 */
#include "memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "poolstat.h"

static void *checked(void *memory) {
    if (memory == NULL) {
        fputs("poolstat: out of memory\n", stderr);
        exit(CODE_FAILED);
    }
    return memory;
}

void *memory_new(size_t count, size_t size) {
    return checked(calloc(count ? count : 1, size));
}

void *memory_raw(size_t count, size_t size) {
    return memory_grow(NULL, count, size);
}

void *memory_grow(void *memory, size_t count, size_t size) {
    return checked(reallocarray(memory, count ? count : 1, size));
}

char *memory_copy(const char *text) {
    return checked(strdup(text));
}

char *memory_format(const char *format, ...) {
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0) text = NULL;
    va_end(arguments);
    return checked(text);
}
