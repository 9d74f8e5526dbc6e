/* SPDX-License-Identifier: MIT
 *
 * What the dynamic loader would read in an ELF file: for whom it was built, whether a loader is asked for, which
 * libraries it needs, whether it exports a name. The file is anybody's: every offset and length in it is checked, every
 * walk is bounded, and it is read with pread, since a mapped file that is cut short kills its reader.
 */
#ifndef POOLSTAT_ELF_FILE_H
#define POOLSTAT_ELF_FILE_H

#include <stdbool.h>
#include <stdint.h>

enum elf_kind {
    ELF_NONE,    /* no ELF file, or not to be read */
    ELF_DAMAGED, /* its tables cannot be right */
    ELF_FOREIGN, /* of another word size, byte order or processor than poolstat's: nothing else is known of it */
    ELF_STATIC,  /* no dynamic loader is asked for */
    ELF_DYNAMIC  /* a program that a loader starts, or a library */
};

struct elf_file {
    int fd; /* the caller's */
    enum elf_kind kind;
    bool is_32;
    uint16_t machine;     /* EM_…, also of ELF_FOREIGN in our byte order */
    bool has_interpreter; /* a program; a library mostly has none */
    /* Of ELF_DYNAMIC, offsets in the file; a size of 0: not there. */
    uint64_t file_bytes;
    struct elf_load {
        uint64_t address, offset, bytes;
    } loads[16];
    unsigned load_count;
    uint64_t dynamic_offset, dynamic_count;
    uint64_t strings_offset, strings_bytes, symbols_offset, gnu_hash_offset, hash_offset;
};

/* Look into the file behind `fd`, which has to stay open as long as the answer is asked. */
void elf_look(struct elf_file *elf, int fd);

/* A definition that other objects can bind to. */
bool elf_exports(const struct elf_file *elf, const char *symbol);

/* Its dependencies name a library that begins so. */
bool elf_needs(const struct elf_file *elf, const char *start);

const char *elf_machine(uint16_t machine); /* for people */
uint16_t elf_own_machine(void);

#endif
