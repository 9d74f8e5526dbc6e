/* SPDX-License-Identifier: MIT
 *
 * Creates the shared-memory file. Everything that can fail does so without a trace in the program: no signal, no
 * output, no half-made file.
 */
#include "stats/segment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "config/config.h"
#include "config/log.h"
#include "stats/identity.h"

/* Bounds on the search for what dead processes left: /dev/shm may be full of other things. */
enum { SCAN_NAMES = 4096, SCAN_FILES = 256 };
enum { INTERRUPTIONS = 16 };
enum { UNFINISHED_S = 60 }; /* making a segment takes a fraction of a millisecond */

uint64_t segment_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t unix_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- description ---- */

#define SECTION(member, records)                                                \
    {                                                                           \
        .offset = offsetof(struct segment_storage, member), .count = (records), \
        .stride = sizeof(((struct segment_storage *)NULL)->member[0])           \
    }

static void describe_config(struct segment_storage *storage) {
    const struct config *config = config_get();
    const size_t count = config_variable_count();
    for (size_t i = 0; i < count && i < POOLCUDA_MAX_CONFIG; i++) {
        struct poolcuda_config_entry *entry = &storage->config[i];
        snprintf(entry->name, sizeof entry->name, "%s", config_variable_at(i)->name);
        config_value_text(config, i, entry->value, sizeof entry->value);
        entry->from_environment = config_from_environment(config, i);
    }
    storage->header.config = (struct poolcuda_section)SECTION(config, (uint32_t)count);
}

void segment_describe(struct segment_storage *storage) {
    struct poolcuda_header *header = &storage->header;
    header->version = POOLCUDA_LAYOUT_VERSION;
    header->header_bytes = sizeof *header;
    header->total_bytes = sizeof *storage;
    header->pid = (uint32_t)getpid();
    header->uid = (uint32_t)geteuid(); /* the file's owner */
    header->start_ticks = identity_own_start_ticks();
    header->pid_namespace = identity_pid_namespace();
    header->created_ns = segment_clock_ns();
    header->created_unix_ns = unix_clock_ns();
    snprintf(header->library_version, sizeof header->library_version, "%s", POOLCUDA_VERSION);
    identity_command(header->command, sizeof header->command);
    describe_config(storage);
    header->pools = (struct poolcuda_section)SECTION(pools, POOLCUDA_MAX_POOLS);
    header->cells = (struct poolcuda_section)SECTION(cells, POOLCUDA_MAX_CELLS);
    header->events = (struct poolcuda_section)SECTION(events, POOLCUDA_MAX_EVENTS);
    header->fixed = (struct poolcuda_section)SECTION(fixed, POOLCUDA_MAX_FIXED);
    /* Last: a process that is killed before leaves a file that is known to be unfinished. */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(header->magic, POOLCUDA_MAGIC, sizeof header->magic);
}

/* ---- files of other processes ---- */

enum found { FOUND_FOREIGN, FOUND_UNFINISHED, FOUND_SEGMENT };

struct found_file {
    struct poolcuda_header header; /* of a FOUND_SEGMENT */
    time_t modified;
};

/* What lies under `name`: a segment of ours, a file of ours that has not become one (yet), or something else. */
static enum found inspect(int directory, const char *name, struct found_file *file) {
    enum found found = FOUND_FOREIGN;
    struct stat status;
    const int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return found;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid()) {
        struct poolcuda_header *header = &file->header;
        const ssize_t bytes = pread(fd, header, sizeof *header, 0);
        file->modified = status.st_mtime;
        if (bytes == 0 || (bytes > 0 && header->magic[0] == '\0'))
            found = FOUND_UNFINISHED;
        else if (bytes == (ssize_t)sizeof *header && memcmp(header->magic, POOLCUDA_MAGIC, sizeof header->magic) == 0 &&
                 header->version == POOLCUDA_LAYOUT_VERSION)
            found = FOUND_SEGMENT;
    }
    close(fd);
    return found;
}

static bool same_namespace(const struct poolcuda_header *one, const struct poolcuda_header *other) {
    return one->pid_namespace != 0 && one->pid_namespace == other->pid_namespace;
}

static void format_name(char *name, size_t size, const struct poolcuda_header *header) {
    snprintf(name, size, "/" POOLCUDA_SHM_PREFIX "%u-%u-%llu", header->uid, header->pid,
             (unsigned long long)header->start_ticks);
}

/* A file of exactly our name was left by an earlier program in this same process (exec), unless another pid namespace
 * shares the folder. */
static bool replaceable(int directory, const char *name, const struct poolcuda_header *identity) {
    struct found_file file;
    switch (inspect(directory, name + 1, &file)) {
    case FOUND_SEGMENT:
        return same_namespace(&file.header, identity);
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
static void remove_if_stale(int directory, const char *name, const char *rest, const struct poolcuda_header *identity) {
    struct found_file file;
    char expected[SEGMENT_NAME_BYTES];
    if (!is_process_name(rest)) return;
    switch (inspect(directory, name, &file)) {
    case FOUND_SEGMENT:
        format_name(expected, sizeof expected, &file.header);
        if (strcmp(expected + 1, name) != 0 || !same_namespace(&file.header, identity) ||
            !identity_gone(file.header.pid, file.header.start_ticks))
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

/* getdents64 and not readdir, which allocates; and little of the stack, which may be a small one. */
static void remove_stale(int directory, const struct poolcuda_header *identity, const char *own_name) {
    char prefix[SEGMENT_NAME_BYTES];
    const size_t length = (size_t)snprintf(prefix, sizeof prefix, POOLCUDA_SHM_PREFIX "%u-", identity->uid);
    _Alignas(struct dirent64) char buffer[1024];
    int names = 0, files = 0;
    ssize_t bytes;
    while (names < SCAN_NAMES && (bytes = getdents64(directory, buffer, sizeof buffer)) > 0) {
        for (ssize_t at = 0; at < bytes;) {
            const struct dirent64 *entry = (const struct dirent64 *)(const void *)(buffer + at);
            at += entry->d_reclen;
            names++;
            if (strncmp(entry->d_name, prefix, length) != 0 || strcmp(entry->d_name, own_name + 1) == 0) continue;
            if (files++ >= SCAN_FILES) return;
            remove_if_stale(directory, entry->d_name, entry->d_name + length, identity);
        }
    }
}

/* ---- our file ---- */

static struct segment_storage *no_figures(const char *step, int error) {
    const char *reason = strerrordesc_np(error);
    log_line(LOG_WARNING, "no figures are published: %s: %s", step, reason == NULL ? "unknown error" : reason);
    return NULL;
}

/* Pages are allocated before they are touched: on a full tmpfs a store would end the program with SIGBUS. */
static int allocate_pages(int fd) {
    int error = EINTR;
    for (int i = 0; i < INTERRUPTIONS && error == EINTR; i++)
        error = posix_fallocate(fd, 0, sizeof(struct segment_storage));
    return error;
}

static struct segment_storage *map_file(int fd) {
    const int error = fchmod(fd, 0600) < 0 ? errno : allocate_pages(fd); /* 0600 whatever the umask */
    if (error != 0) return no_figures("cannot size the segment", error);
    void *memory = mmap(NULL, sizeof(struct segment_storage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? no_figures("cannot map the segment", errno) : memory;
}

struct segment_storage *segment_create(const struct poolcuda_header *identity, char name[SEGMENT_NAME_BYTES]) {
    format_name(name, SEGMENT_NAME_BYTES, identity);
    const int directory = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory >= 0) remove_stale(directory, identity, name);
    int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST) {
        if (directory >= 0 && replaceable(directory, name, identity)) shm_unlink(name);
        fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    }
    const int error = errno;
    if (directory >= 0) close(directory);
    if (fd < 0) return no_figures("cannot create the segment", error);
    struct segment_storage *storage = map_file(fd);
    if (storage == NULL) shm_unlink(name);
    close(fd);
    return storage;
}

void segment_unlink(const char *name) {
    shm_unlink(name);
}
