/* SPDX-License-Identifier: MIT
 *
 * Reads /proc/PID/{maps,environ,auxv,exe,comm}.
 */
#include "evidence.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory.h"

#define MOST_BYTES (UINT32_C(8) << 20) /* of an environment, or of a list of mappings */
#define DELETED " (deleted)"

const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static int open_of(uint32_t pid, const char *name) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%u/%s", pid, name);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* All of it, with a zero behind it; NULL when we may not read it. */
static char *read_of(uint32_t pid, const char *name, size_t *size) {
    size_t capacity = 4096;
    ssize_t got = 0;
    const int fd = open_of(pid, name);
    if (fd < 0) return NULL;
    char *bytes = memory_new(capacity, 1);
    *size = 0;
    while (*size < MOST_BYTES && (got = read(fd, bytes + *size, capacity - *size - 1)) > 0) {
        *size += (size_t)got;
        if (capacity - *size < 2) bytes = memory_grow(bytes, capacity *= 2, 1);
    }
    close(fd);
    bytes[*size] = '\0';
    if (got >= 0) return bytes;
    free(bytes);
    return NULL;
}

/* The mappings of one file lie close together: what is further back is not worth a search. */
static bool is_known(const struct evidence *evidence, const char *path, uint64_t inode) {
    for (size_t i = evidence->file_count; i > 0 && i + 16 > evidence->file_count;)
        if (evidence->files[--i].inode == inode && strcmp(evidence->files[i].path, path) == 0) return true;
    return false;
}

/* "7f00-7f01 r-xp 00000000 08:01 1234   /a path (deleted)" */
static void take_mapping(struct evidence *evidence, char *line, size_t *capacity) {
    unsigned long long inode;
    struct mapped_file file = {0};
    char *path = strchr(line, '/');
    if (path == NULL || sscanf(line, "%39s %*s %*s %*s %llu", file.range, &inode) != 2 || inode == 0) return;
    const size_t length = strlen(path), mark = strlen(DELETED);
    file.deleted = length > mark && strcmp(path + length - mark, DELETED) == 0;
    if (file.deleted) path[length - mark] = '\0';
    file.inode = inode;
    if (is_known(evidence, path, inode)) return;
    file.path = memory_copy(path);
    if (evidence->file_count == *capacity)
        evidence->files = memory_grow(evidence->files, *capacity = *capacity ? 2 * *capacity : 64, sizeof(file));
    evidence->files[evidence->file_count++] = file;
}

static bool read_maps(struct evidence *evidence) {
    size_t size, capacity = 0;
    char *maps = read_of(evidence->process.pid, "maps", &size), *rest = maps;
    for (char *line; rest != NULL && (line = strsep(&rest, "\n")) != NULL;) take_mapping(evidence, line, &capacity);
    free(maps);
    return maps != NULL;
}

/* Pairs of words, of 32 bits where the program is so. */
static bool read_secure(struct evidence *evidence) {
    size_t size;
    char *auxv = read_of(evidence->process.pid, "auxv", &size);
    if (auxv == NULL) return false;
    const int fd = open_of(evidence->process.pid, "exe");
    struct elf_file elf = {0};
    if (fd >= 0) {
        elf_look(&elf, fd);
        close(fd);
    }
    if (elf.is_32) {
        const Elf32_auxv_t *pair = (const Elf32_auxv_t *)(const void *)auxv;
        for (size_t i = 0; i < size / sizeof(*pair); i++)
            if (pair[i].a_type == AT_SECURE) evidence->secure = pair[i].a_un.a_val != 0;
    } else {
        const Elf64_auxv_t *pair = (const Elf64_auxv_t *)(const void *)auxv;
        for (size_t i = 0; i < size / sizeof(*pair); i++)
            if (pair[i].a_type == AT_SECURE) evidence->secure = pair[i].a_un.a_val != 0;
    }
    free(auxv);
    return true;
}

static char *read_program(uint32_t pid) {
    char link[64], path[4096];
    snprintf(link, sizeof(link), "/proc/%u/exe", pid);
    const ssize_t length = readlink(link, path, sizeof(path) - 1);
    if (length <= 0) return NULL;
    path[length] = '\0';
    return memory_copy(path);
}

static char *read_command(uint32_t pid) {
    size_t size;
    char *command = read_of(pid, "comm", &size);
    if (command != NULL && size > 0 && command[size - 1] == '\n') command[size - 1] = '\0';
    return command;
}

static uint32_t read_parent(uint32_t pid) {
    size_t size;
    unsigned parent = 0;
    char *stat = read_of(pid, "stat", &size);
    const char *rest = stat == NULL ? NULL : strrchr(stat, ')');
    if (rest != NULL) sscanf(rest + 1, " %*c %u", &parent);
    free(stat);
    return parent;
}

bool evidence_gather(struct evidence *evidence, uint32_t pid) {
    *evidence = (struct evidence){0};
    if (!procfs_read(pid, &evidence->process)) return false;
    evidence->parent = read_parent(pid);
    evidence->command = read_command(pid);
    evidence->program = read_program(pid);
    evidence->environment = read_of(pid, "environ", &evidence->environment_bytes);
    evidence->permitted = evidence->environment != NULL && read_maps(evidence) && read_secure(evidence);
    return true;
}

void evidence_free(struct evidence *evidence) {
    for (size_t i = 0; i < evidence->file_count; i++) free(evidence->files[i].path);
    free(evidence->files);
    free(evidence->command);
    free(evidence->program);
    free(evidence->environment);
    *evidence = (struct evidence){0};
}

const char *evidence_variable(const struct evidence *evidence, const char *name) {
    const size_t length = strlen(name);
    const char *end = evidence->environment + evidence->environment_bytes;
    for (const char *at = evidence->environment; at != NULL && at < end; at += strlen(at) + 1)
        if (strncmp(at, name, length) == 0 && at[length] == '=') return at + length + 1;
    return NULL;
}

const struct mapped_file *evidence_file(const struct evidence *evidence, const char *start) {
    for (size_t i = 0; i < evidence->file_count; i++)
        if (strncmp(base_name(evidence->files[i].path), start, strlen(start)) == 0) return &evidence->files[i];
    return NULL;
}

int evidence_open(const struct evidence *evidence, const char *path) {
    char *through = memory_format("/proc/%u/root%s", evidence->process.pid, path);
    const int fd = open(through, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    free(through);
    return fd;
}

int evidence_open_mapped(const struct evidence *evidence, const struct mapped_file *file) {
    struct stat status;
    const int fd = evidence_open(evidence, file->path);
    if (fd >= 0 && fstat(fd, &status) == 0 && status.st_ino == file->inode) return fd;
    if (fd >= 0) close(fd);
    char *name = memory_format("map_files/%s", file->range);
    const int mapped = open_of(evidence->process.pid, name);
    free(name);
    return mapped;
}
