/* SPDX-License-Identifier: MIT
 *
 * Fuzz target over the reader of ELF files, which doctor opens wherever a process has mapped one.
 */
#include "poolstat/elf_file.h"

#include "fuzz.h"

static int input;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    input = fuzz_file();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct elf_file elf;
    fuzz_fill(input, data, size);
    elf_look(&elf, input);
    (void)elf_exports(&elf, "dlsym");
    (void)elf_needs(&elf, "libcuda.so");
    (void)elf_machine(elf.machine);
    return 0;
}
