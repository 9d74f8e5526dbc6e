/* SPDX-License-Identifier: MIT
 *
 * Stands in for libFuzzer where the compiler has none: calls a target with each file named, once. The last one is
 * named in the file descriptor 2 before it is tried, so that a crash tells by which.
 */
#include <stdio.h>
#include <stdlib.h>

#include "fuzz.h"

static uint8_t *read_file(const char *path, size_t *size) {
    enum { MOST = 1 << 20 };
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(MOST);
    if (file == NULL || data == NULL) {
        perror(path);
        exit(2);
    }
    *size = fread(data, 1, MOST, file);
    fclose(file);
    return data;
}

int main(int argc, char **argv) {
    LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++) {
        size_t size;
        uint8_t *data = read_file(argv[i], &size);
        fprintf(stderr, "input %s\n", argv[i]);
        LLVMFuzzerTestOneInput(data, size);
        free(data);
    }
    return 0;
}
