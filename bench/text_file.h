/* SPDX-License-Identifier: MIT
 *
 * Reads a whole text file into memory, unpacked when it is compressed with xz (told by its first bytes, not its name).
 */
#ifndef BENCH_TEXT_FILE_H
#define BENCH_TEXT_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* On success *text (owned by the caller, free) holds *size bytes and a terminator after them. Otherwise `error` says,
 * with the file's name, what is wrong. */
bool text_file_read(const char *path, char **text, size_t *size, char *error, size_t error_size);

#endif
