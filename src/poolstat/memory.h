/* SPDX-License-Identifier: MIT
 *
 * Memory for a short-lived tool: these never return NULL; without memory the program ends with CODE_FAILED.
 */
#ifndef POOLSTAT_MEMORY_H
#define POOLSTAT_MEMORY_H

#include <stddef.h>

void *memory_new(size_t count, size_t size); /* zeroed; count 0 is allowed */
void *memory_raw(size_t count, size_t size); /* not zeroed */
void *memory_grow(void *memory, size_t count, size_t size);
char *memory_copy(const char *text);
char *memory_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
