/* SPDX-License-Identifier: MIT
 *
 * Reads ELF files a record at a time. Of files for other machines only that is told.
 */
#include "elf_file.h"

#include <elf.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OWN_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OWN_MACHINE EM_AARCH64
#else
#error "the library is for x86-64 and AArch64"
#endif

/* Bounds on walks. No sane file comes near them. */
#define MAX_HEADERS 256u
#define MAX_DYNAMIC 4096u
#define MAX_CHAIN 65536u
#define MAX_NAME 256u

uint16_t elf_own_machine(void) {
    return OWN_MACHINE;
}

const char *elf_machine(uint16_t machine) {
    switch (machine) {
    case EM_386:
        return "32-bit x86";
    case EM_ARM:
        return "32-bit ARM";
    case EM_X86_64:
        return "x86-64";
    case EM_AARCH64:
        return "AArch64";
    case EM_PPC64:
        return "POWER";
    case EM_RISCV:
        return "RISC-V";
    default:
        return "another processor";
    }
}

static bool read_at(const struct elf_file *elf, void *to, size_t size, uint64_t offset) {
    if (offset > elf->file_bytes || size > elf->file_bytes - offset) return false;
    char *at = to;
    while (size > 0) {
        const ssize_t got = pread(elf->fd, at, size, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += got;
        offset += (uint64_t)got;
        size -= (size_t)got;
    }
    return true;
}

/* From an address in the loaded image to the place in the file. False where no part of the file lies there. */
static bool place_of(const struct elf_file *elf, uint64_t address, uint64_t *offset) {
    for (unsigned i = 0; i < elf->load_count; i++) {
        const struct elf_load *load = &elf->loads[i];
        if (address < load->address || address - load->address >= load->bytes) continue;
        return !__builtin_add_overflow(load->offset, address - load->address, offset) && *offset < elf->file_bytes;
    }
    return false;
}

static bool read_dynamic(const struct elf_file *elf, uint64_t index, Elf64_Dyn *entry) {
    return index < elf->dynamic_count &&
           read_at(elf, entry, sizeof(*entry), elf->dynamic_offset + index * sizeof(*entry)) && entry->d_tag != DT_NULL;
}

/* False when a table that is named cannot be where it is said to be. */
static bool find_tables(struct elf_file *elf) {
    Elf64_Dyn entry;
    for (uint64_t i = 0; read_dynamic(elf, i, &entry); i++) {
        uint64_t *to = entry.d_tag == DT_STRTAB     ? &elf->strings_offset
                       : entry.d_tag == DT_SYMTAB   ? &elf->symbols_offset
                       : entry.d_tag == DT_GNU_HASH ? &elf->gnu_hash_offset
                       : entry.d_tag == DT_HASH     ? &elf->hash_offset
                                                    : NULL;
        if (to != NULL && !place_of(elf, entry.d_un.d_ptr, to)) return false;
        if (entry.d_tag == DT_STRSZ) elf->strings_bytes = entry.d_un.d_val;
    }
    return elf->strings_offset == 0 || elf->strings_bytes <= elf->file_bytes - elf->strings_offset;
}

static bool take_header(struct elf_file *elf, const Elf64_Phdr *header) {
    switch (header->p_type) {
    case PT_INTERP:
        elf->has_interpreter = true;
        break;
    case PT_LOAD:
        /* The tables of a library lie in its first parts. */
        if (elf->load_count < sizeof(elf->loads) / sizeof(elf->loads[0]))
            elf->loads[elf->load_count++] = (struct elf_load){header->p_vaddr, header->p_offset, header->p_filesz};
        break;
    case PT_DYNAMIC:
        if (header->p_offset > elf->file_bytes || header->p_filesz > elf->file_bytes - header->p_offset) return false;
        elf->dynamic_offset = header->p_offset;
        elf->dynamic_count = header->p_filesz / sizeof(Elf64_Dyn);
        if (elf->dynamic_count > MAX_DYNAMIC) elf->dynamic_count = MAX_DYNAMIC;
        break;
    default:
        break;
    }
    return true;
}

static enum elf_kind look_at_headers(struct elf_file *elf, const Elf64_Ehdr *file) {
    if (file->e_phentsize != sizeof(Elf64_Phdr) || file->e_phnum > MAX_HEADERS ||
        (file->e_type != ET_EXEC && file->e_type != ET_DYN))
        return ELF_DAMAGED;
    for (unsigned i = 0; i < file->e_phnum; i++) {
        Elf64_Phdr header;
        if (__builtin_add_overflow(file->e_phoff, i * sizeof(header), &(uint64_t){0}) ||
            !read_at(elf, &header, sizeof(header), file->e_phoff + i * sizeof(header)) || !take_header(elf, &header))
            return ELF_DAMAGED;
    }
    if (!find_tables(elf)) return ELF_DAMAGED;
    /* A position-independent static program has a dynamic section too, and a library mostly no interpreter: what is to
     * be started and asks for no loader is static. The loader itself and libraries are told apart by their needs. */
    return elf->has_interpreter || (file->e_type == ET_DYN && elf->symbols_offset != 0 && elf_needs(elf, ""))
               ? ELF_DYNAMIC
               : ELF_STATIC;
}

void elf_look(struct elf_file *elf, int fd) {
    union {
        Elf64_Ehdr header;
        unsigned char ident[EI_NIDENT];
    } start = {0};
    struct stat status;
    *elf = (struct elf_file){.fd = fd, .kind = ELF_NONE};
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size <= 0) return;
    elf->file_bytes = (uint64_t)status.st_size;
    const size_t size = elf->file_bytes < sizeof(start) ? (size_t)elf->file_bytes : sizeof(start);
    if (!read_at(elf, &start, size, 0) || size < sizeof(Elf32_Ehdr) || memcmp(start.ident, ELFMAG, SELFMAG) != 0)
        return;
    elf->kind = ELF_FOREIGN;
    elf->is_32 = start.ident[EI_CLASS] == ELFCLASS32;
    if (start.ident[EI_DATA] != ELFDATA2LSB) return;
    elf->machine = start.header.e_machine; /* at the same place in both classes */
    if (start.ident[EI_CLASS] != ELFCLASS64 || elf->machine != OWN_MACHINE) return;
    elf->kind = size < sizeof(start.header) ? ELF_DAMAGED : look_at_headers(elf, &start.header);
}

/* The string equals `wanted`, or only begins so. */
static bool string_is(const struct elf_file *elf, uint64_t at, const char *wanted, bool whole) {
    char text[MAX_NAME];
    const size_t length = strlen(wanted) + whole;
    if (length > sizeof(text) || at >= elf->strings_bytes || length > elf->strings_bytes - at) return false;
    return read_at(elf, text, length, elf->strings_offset + at) && memcmp(text, wanted, length) == 0;
}

bool elf_needs(const struct elf_file *elf, const char *start) {
    Elf64_Dyn entry;
    for (uint64_t i = 0; read_dynamic(elf, i, &entry); i++)
        if (entry.d_tag == DT_NEEDED && string_is(elf, entry.d_un.d_val, start, false)) return true;
    return false;
}

/* Number `index` of the symbols is a definition of this name. */
static bool defines(const struct elf_file *elf, uint64_t index, const char *name) {
    Elf64_Sym symbol;
    if (index > UINT32_MAX || !read_at(elf, &symbol, sizeof(symbol), elf->symbols_offset + index * sizeof(symbol)))
        return false;
    const unsigned char binding = ELF64_ST_BIND(symbol.st_info), visibility = ELF64_ST_VISIBILITY(symbol.st_other);
    return symbol.st_shndx != SHN_UNDEF && binding != STB_LOCAL &&
           (visibility == STV_DEFAULT || visibility == STV_PROTECTED) && string_is(elf, symbol.st_name, name, true);
}

static bool word_at(const struct elf_file *elf, uint64_t offset, uint64_t index, uint32_t *word) {
    return read_at(elf, word, sizeof(*word), offset + index * sizeof(*word));
}

static bool in_gnu_hash(const struct elf_file *elf, const char *name) {
    struct {
        uint32_t buckets, first, words, shift;
    } table;
    uint32_t hash = 5381, at, entry;
    for (const char *letter = name; *letter != '\0'; letter++) hash = hash * 33 + (unsigned char)*letter;
    if (!read_at(elf, &table, sizeof(table), elf->gnu_hash_offset) || table.buckets == 0) return false;
    const uint64_t buckets = elf->gnu_hash_offset + sizeof(table) + (uint64_t)table.words * sizeof(uint64_t);
    const uint64_t chains = buckets + (uint64_t)table.buckets * sizeof(uint32_t);
    if (!word_at(elf, buckets, hash % table.buckets, &at) || at < table.first) return false;
    for (unsigned i = 0; i < MAX_CHAIN; i++, at++) {
        if (!word_at(elf, chains, at - table.first, &entry)) return false;
        if ((entry | 1) == (hash | 1) && defines(elf, at, name)) return true;
        if (entry & 1 || at == UINT32_MAX) return false;
    }
    return false;
}

static bool in_hash(const struct elf_file *elf, const char *name) {
    uint32_t hash = 0, buckets, at;
    for (const char *letter = name; *letter != '\0'; letter++) {
        hash = (hash << 4) + (unsigned char)*letter;
        hash = (hash ^ (hash & 0xf0000000u) >> 24) & ~0xf0000000u;
    }
    if (!word_at(elf, elf->hash_offset, 0, &buckets) || buckets == 0) return false;
    if (!word_at(elf, elf->hash_offset, UINT64_C(2) + hash % buckets, &at)) return false;
    for (unsigned i = 0; at != STN_UNDEF && i < MAX_CHAIN; i++) {
        if (defines(elf, at, name)) return true;
        if (!word_at(elf, elf->hash_offset, UINT64_C(2) + buckets + at, &at)) return false;
    }
    return false;
}

bool elf_exports(const struct elf_file *elf, const char *symbol) {
    if (elf->kind != ELF_DYNAMIC && elf->kind != ELF_STATIC) return false;
    if (elf->symbols_offset == 0 || elf->strings_offset == 0) return false;
    return elf->gnu_hash_offset != 0 ? in_gnu_hash(elf, symbol) : elf->hash_offset != 0 && in_hash(elf, symbol);
}
