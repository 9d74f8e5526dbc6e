/* SPDX-License-Identifier: MIT
 *
 * What /proc tells of one process to somebody who asks why it is (not) pooled: its program, the files mapped in it, the
 * environment that it began with, and whether the loader ran it in secure mode. All strings are the process's own and
 * not safe to print.
 */
#ifndef POOLSTAT_EVIDENCE_H
#define POOLSTAT_EVIDENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "elf_file.h"
#include "procfs.h"

/* One file that is mapped, whatever the number of its mappings. */
struct mapped_file {
    char *path;     /* as the process sees it, without the mark " (deleted)" */
    char range[40]; /* of the first mapping, as in /proc/PID/map_files */
    uint64_t inode;
    bool deleted; /* removed or replaced since it was mapped */
};

struct evidence {
    struct procfs_process process;
    uint32_t parent;
    char *command;             /* as the process calls itself; NULL when unknown */
    char *program;             /* path of the executable; NULL when unknown */
    struct mapped_file *files; /* by address */
    size_t file_count;
    char *environment; /* strings, one after the other, as they were when the program began */
    size_t environment_bytes;
    bool secure;    /* setuid, setgid or file capabilities: the loader ignores most of LD_PRELOAD */
    bool permitted; /* files, environment and secure are known */
};

/* False when there is no such process. */
bool evidence_gather(struct evidence *evidence, uint32_t pid);
void evidence_free(struct evidence *evidence);

/* The value of a variable in it, or NULL. */
const char *evidence_variable(const struct evidence *evidence, const char *name);

/* The mapped file whose base name begins so, or NULL. */
const struct mapped_file *evidence_file(const struct evidence *evidence, const char *start);

/* Open a file as the process sees it; the mapped one even when it was deleted, where the kernel lets us. −1 when that
 * cannot be. */
int evidence_open(const struct evidence *evidence, const char *path);
int evidence_open_mapped(const struct evidence *evidence, const struct mapped_file *file);

const char *base_name(const char *path);

#endif
