/* SPDX-License-Identifier: MIT
 *
 * What fuzz targets share: a file in memory that holds the input, and the entry points by which libFuzzer, or replay.c
 * in its place, calls them.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int fuzz_file(void);                                        /* ends the program where none can be made */
void fuzz_fill(int file, const uint8_t *data, size_t size); /* the input, and nothing else, is in it */
void fuzz_quieten(void);                                    /* stdout leads nowhere */

#endif
