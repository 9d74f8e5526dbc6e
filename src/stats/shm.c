/* SPDX-License-Identifier: MIT
 *
 * Creates files in /dev/shm. What is not surely the remains of a dead process of ours is left alone.
 */
#include "stats/shm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "poolcuda/control.h"
#include "poolcuda/stats.h"
#include "stats/identity.h"

/* The name is "/", the prefix, and UID-PID-START. */
struct kind {
    const char *prefix, *magic;
    uint32_t version;
    size_t header_bytes; /* a shorter file is none */
};
static const struct kind kinds[SHM_KINDS] = {
    [SHM_SEGMENT] = {POOLCUDA_SHM_PREFIX, POOLCUDA_MAGIC, POOLCUDA_LAYOUT_VERSION, sizeof(struct poolcuda_header)},
    [SHM_CONTROL] = {POOLCUDA_CONTROL_PREFIX, POOLCUDA_CONTROL_MAGIC, POOLCUDA_CONTROL_VERSION,
                     sizeof(struct poolcuda_control_header)},
};

#define SAME_PLACE(field)                                                                                   \
    _Static_assert(offsetof(struct poolcuda_header, field) == offsetof(struct shm_head, field) &&           \
                       offsetof(struct poolcuda_control_header, field) == offsetof(struct shm_head, field), \
                   #field)
SAME_PLACE(magic);
SAME_PLACE(version);
SAME_PLACE(header_bytes);
SAME_PLACE(total_bytes);
SAME_PLACE(pid);
SAME_PLACE(uid);
SAME_PLACE(start_ticks);
SAME_PLACE(pid_namespace);

/* Bounds on the search for what dead processes left: /dev/shm may be full of other things. */
enum { SCAN_NAMES = 4096, SCAN_FILES = 256 };
enum { INTERRUPTIONS = 16 };
enum { UNFINISHED_S = 60 }; /* making a file takes a fraction of a millisecond */

/* ---- files of other processes ---- */

enum found { FOUND_FOREIGN, FOUND_UNFINISHED, FOUND_FILE };

struct found_file {
    struct shm_head head; /* of a FOUND_FILE */
    time_t modified;
};

static bool is_of_kind(const struct shm_head *head, const struct kind *kind) {
    return memcmp(head->magic, kind->magic, sizeof head->magic) == 0 && head->version == kind->version;
}

/* What lies under `name`: a file of the kind, a file of ours that has not become one (yet), or something else. */
static enum found inspect(const struct kind *kind, int directory, const char *name, struct found_file *file) {
    enum found found = FOUND_FOREIGN;
    struct stat status;
    const int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return found;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid()) {
        struct shm_head *head = &file->head;
        const ssize_t bytes = pread(fd, head, sizeof *head, 0);
        file->modified = status.st_mtime;
        if (bytes == 0 || (bytes > 0 && head->magic[0] == '\0'))
            found = FOUND_UNFINISHED;
        else if (bytes == (ssize_t)sizeof *head && status.st_size >= (off_t)kind->header_bytes &&
                 is_of_kind(head, kind))
            found = FOUND_FILE;
    }
    close(fd);
    return found;
}

static bool same_namespace(const struct shm_head *one, const struct shm_head *other) {
    return one->pid_namespace != 0 && one->pid_namespace == other->pid_namespace;
}

static void format_name(const struct kind *kind, char *name, size_t size, const struct shm_head *head) {
    snprintf(name, size, "/%s%u-%u-%llu", kind->prefix, head->uid, head->pid, (unsigned long long)head->start_ticks);
}

/* A file of exactly our name was left by an earlier program in this same process (exec), unless another pid namespace
 * shares the folder. */
static bool replaceable(const struct kind *kind, int directory, const char *name, const struct shm_head *identity) {
    struct found_file file;
    switch (inspect(kind, directory, name + 1, &file)) {
    case FOUND_FILE:
        return same_namespace(&file.head, identity);
    case FOUND_UNFINISHED:
        return identity->start_ticks != 0;
    case FOUND_FOREIGN:
        break;
    }
    return false;
}

static bool is_process_name(const char *rest) {
    static const char digits[] = "0123456789";
    const size_t pid = strspn(rest, digits), start = rest[pid] == '-' ? strspn(rest + pid + 1, digits) : 0;
    return pid > 0 && start > 0 && rest[pid + 1 + start] == '\0';
}

/* `rest` is the name's part after the user. */
static void remove_if_stale(const struct kind *kind, int directory, const char *name, const char *rest,
                            const struct shm_head *identity) {
    struct found_file file;
    char expected[SHM_NAME_BYTES];
    if (!is_process_name(rest)) return;
    switch (inspect(kind, directory, name, &file)) {
    case FOUND_FILE:
        format_name(kind, expected, sizeof expected, &file.head);
        if (strcmp(expected + 1, name) != 0 || !same_namespace(&file.head, identity) ||
            !identity_gone(file.head.pid, file.head.start_ticks))
            return;
        break;
    case FOUND_UNFINISHED: /* its process was killed while it made the file, unless it is making it now */
        if (time(NULL) - file.modified < UNFINISHED_S) return;
        break;
    case FOUND_FOREIGN:
        return;
    }
    unlinkat(directory, name, 0);
}

/* Of one kind; false when the name begins as none of its. */
static bool look_at(const struct kind *kind, int directory, const char *name, const struct shm_head *identity) {
    char prefix[SHM_NAME_BYTES];
    const size_t length = (size_t)snprintf(prefix, sizeof prefix, "%s%u-", kind->prefix, identity->uid);
    if (strncmp(name, prefix, length) != 0) return false;
    remove_if_stale(kind, directory, name, name + length, identity);
    return true;
}

/* getdents64 and not readdir, which allocates; and little of the stack, which may be a small one. */
static void remove_stale(int directory, const struct shm_head *identity, const char *own_name) {
    _Alignas(struct dirent64) char buffer[1024];
    int names = 0, files = 0;
    ssize_t bytes;
    while (names < SCAN_NAMES && (bytes = getdents64(directory, buffer, sizeof buffer)) > 0) {
        for (ssize_t at = 0; at < bytes;) {
            const struct dirent64 *entry = (const struct dirent64 *)(const void *)(buffer + at);
            at += entry->d_reclen;
            names++;
            if (strcmp(entry->d_name, own_name + 1) == 0) continue;
            for (int kind = 0; kind < SHM_KINDS; kind++)
                files += look_at(&kinds[kind], directory, entry->d_name, identity);
            if (files >= SCAN_FILES) return;
        }
    }
}

/* ---- our file ---- */

static int allocate_pages(int fd, size_t bytes) {
    int error = EINTR;
    for (int i = 0; i < INTERRUPTIONS && error == EINTR; i++) error = posix_fallocate(fd, 0, (off_t)bytes);
    return error;
}

static int open_new(const struct kind *kind, const struct shm_head *identity, const char *name) {
    const int directory = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory >= 0 && kind == &kinds[SHM_SEGMENT]) remove_stale(directory, identity, name);
    int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST) {
        if (directory >= 0 && replaceable(kind, directory, name, identity)) shm_unlink(name);
        fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    }
    const int error = errno;
    if (directory >= 0) close(directory);
    errno = error;
    return fd;
}

int shm_create(enum shm_kind kind, const struct shm_head *identity, size_t bytes, char name[SHM_NAME_BYTES],
               const char **step) {
    format_name(&kinds[kind], name, SHM_NAME_BYTES, identity);
    *step = "create";
    const int fd = open_new(&kinds[kind], identity, name);
    if (fd < 0) return -1;
    const int error = fchmod(fd, 0600) < 0 ? errno : allocate_pages(fd, bytes); /* 0600 whatever the umask */
    if (error == 0) return fd;
    *step = "size";
    shm_unlink(name);
    close(fd);
    errno = error;
    return -1;
}
