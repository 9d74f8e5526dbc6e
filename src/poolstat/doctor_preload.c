/* SPDX-License-Identifier: MIT
 *
 * `doctor`: LD_PRELOAD, and who stands in it before the library. The loader looks names up in the program first, then
 * in what LD_PRELOAD names, in that order, then in what /etc/ld.so.preload names: whoever has a dlsym there before the
 * pool's is asked in its place, and finds the driver's functions without the pool.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "diagnosis.h"
#include "library.h"
#include "memory.h"

size_t preload_entry(const char **at, const char **entry) {
    *entry = *at + strspn(*at, ": \t\n");
    const size_t length = strcspn(*entry, ": \t\n");
    *at = *entry + length;
    return length;
}

static bool entry_is_library(const char *entry, size_t length) {
    char *copy = memory_format("%.*s", (int)length, entry);
    const bool is = strncmp(base_name(copy), LIBRARY_NAME, strlen(LIBRARY_NAME)) == 0;
    free(copy);
    return is;
}

bool preload_names_library(const char *list) {
    const char *entry;
    if (list == NULL) return false;
    for (size_t length; (length = preload_entry(&list, &entry)) > 0;)
        if (entry_is_library(entry, length)) return true;
    return false;
}

/* An entry may be a link, or a bare name that the loader has searched: the same file, or else the same name up to what
 * follows ".so". */
static bool entry_is(const struct evidence *evidence, const char *entry, size_t length,
                     const struct mapped_file *file) {
    char *path = memory_format("%.*s", (int)length, entry);
    struct stat status;
    bool is = false;
    const int fd = path[0] == '/' ? evidence_open(evidence, path) : -1;
    if (fd >= 0) {
        is = fstat(fd, &status) == 0 && status.st_ino == file->inode;
        close(fd);
    } else {
        const char *name = base_name(path), *dot = strstr(name, ".so");
        const size_t stem = dot == NULL ? strlen(name) : (size_t)(dot - name) + strlen(".so");
        is = stem > 0 && strncmp(name, base_name(file->path), stem) == 0;
    }
    free(path);
    return is;
}

/* Where LD_PRELOAD names the file, counted from 1; 0 when it does not. */
static unsigned place_of(const struct evidence *evidence, const char *list, const struct mapped_file *file) {
    const char *entry;
    unsigned place = 0;
    for (size_t length; list != NULL && (length = preload_entry(&list, &entry)) > 0;) {
        place++;
        if (entry_is(evidence, entry, length, file)) return place;
    }
    return 0;
}

static bool has_dlsym(const struct evidence *evidence, const struct mapped_file *file) {
    struct elf_file elf;
    const int fd = evidence_open_mapped(evidence, file);
    if (fd < 0) return false;
    elf_look(&elf, fd);
    const bool has = elf_exports(&elf, "dlsym");
    close(fd);
    return has;
}

/* libc's own, which everybody asks in the end. */
static bool is_of_libc(const char *name) {
    static const char *const names[] = {"libc.so", "libc-", "libdl.so", "libdl-", LIBRARY_NAME};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0) return true;
    return false;
}

void doctor_dlsym(struct diagnosis *diagnosis, const struct evidence *evidence, const char *list) {
    const struct mapped_file *library = evidence_file(evidence, LIBRARY_NAME);
    const unsigned own = place_of(evidence, list, library);
    for (size_t i = 0; i < evidence->file_count; i++) {
        const struct mapped_file *file = &evidence->files[i];
        if (is_of_libc(base_name(file->path)) || !has_dlsym(evidence, file)) continue;
        const bool is_program = evidence->program != NULL && strcmp(file->path, evidence->program) == 0;
        const unsigned place = place_of(evidence, list, file);
        if (is_program) {
            advise(diagnose(diagnosis, SEVERITY_PROBLEM, "other_dlsym",
                            "The program itself has a dlsym (%s), which is asked before the pool's.", file->path),
                   "Nothing can be preloaded before a program: build it without exporting that name.");
        } else if (place != 0 && (own == 0 || place < own)) {
            advise(diagnose(diagnosis, SEVERITY_PROBLEM, "other_dlsym",
                            "%s has a dlsym and stands before the pool in LD_PRELOAD: what it looks up in libc for "
                            "others goes around the pool.",
                            file->path),
                   "Name " LIBRARY_NAME " first in LD_PRELOAD, as poolstat run does.");
        } else {
            diagnose(diagnosis, SEVERITY_OK, "other_dlsym_behind", "%s has a dlsym too, but behind the pool's.",
                     file->path);
        }
    }
}
