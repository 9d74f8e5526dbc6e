/* SPDX-License-Identifier: MIT
 *
 * The file that holds an input.
 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int fuzz_file(void) {
    const int file = memfd_create("input", MFD_CLOEXEC);
    if (file >= 0) return file;
    perror("memfd_create");
    exit(2);
}

void fuzz_fill(int file, const uint8_t *data, size_t size) {
    if (ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == (ssize_t)size) return;
    perror("the input cannot be written");
    exit(2);
}

void fuzz_quieten(void) {
    if (freopen("/dev/null", "w", stdout) != NULL) return;
    perror("/dev/null");
    exit(2);
}
