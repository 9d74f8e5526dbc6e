/* SPDX-License-Identifier: MIT
 *
 * The file: a plain one, made anew and owner only. Its descriptor stays open, high up and closed on exec; the program
 * may close it, as daemons close what they do not know, and open a file of its own under its number: so it is used only
 * while it is what it was, and else opened again.
 */
#include "trace/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"
#include "config/log.h"
#include "trace/counter.h"

enum { DESCRIPTOR_HIGH = 100, DESCRIPTOR_LOWEST = 3 };
enum { NAMES_MOST = 1000 }; /* tried for one file */

static struct {
    int fd; /* -1: none */
    dev_t device;
    ino_t inode;
    uint64_t blocks;
    off_t bytes; /* written to it */
    char path[PATH_MAX];
} file = {.fd = -1};

static const char *reason_of(int error) {
    const char *reason = strerrordesc_np(error);
    return reason == NULL ? "unknown error" : reason;
}

static enum file_result failed(const char *step, int error) {
    log_line(LOG_WARNING, "POOL_TRACE: %s %.*s: %s: nothing more is recorded", step, 512, file.path, reason_of(error));
    return FILE_FAILED;
}

/* As with a bad value, it is said whether a log is wanted or not. */
static enum file_result not_made(int error) {
    struct stat status;
    const bool is_there = lstat(file.path, &status) == 0;
    const size_t length = strlen(file.path);
    if (is_there && S_ISDIR(status.st_mode))
        log_line(LOG_ALWAYS, "POOL_TRACE: %.*s is a folder; a file in it would be %.*s%srun.%%p: nothing is recorded",
                 512, file.path, 256, file.path, file.path[length - 1] == '/' ? "" : "/");
    else if (is_there && !S_ISREG(status.st_mode))
        log_line(LOG_ALWAYS, "POOL_TRACE: %.*s is no plain file; it must be one, or not be there: nothing is recorded",
                 512, file.path);
    else
        log_line(LOG_ALWAYS, "POOL_TRACE: cannot make %.*s: %s: nothing is recorded", 512, file.path, reason_of(error));
    return FILE_FAILED;
}

/* ---- the descriptor ---- */

/* Under a number that programs do not expect to be theirs. */
static int keep_high(int fd) {
    int kept = fcntl(fd, F_DUPFD_CLOEXEC, DESCRIPTOR_HIGH);
    if (kept < 0) kept = fcntl(fd, F_DUPFD_CLOEXEC, DESCRIPTOR_LOWEST);
    if (kept < 0 && fd >= DESCRIPTOR_LOWEST) return fd; /* the last one that could be had */
    close(fd);
    return kept;
}

static bool is_there(int fd) {
    struct stat status;
    return fd >= 0 && fstat(fd, &status) == 0 && status.st_dev == file.device && status.st_ino == file.inode;
}

static enum file_result open_again(void) {
    const int fd = open(file.path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        const bool for_now = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == EINTR;
        return for_now ? FILE_MISSED : failed("cannot open again", errno);
    }
    /* A number may come back: a file that another one has been put in the place of is known by its size. */
    struct stat status;
    if (!is_there(fd) || fstat(fd, &status) != 0 || status.st_size != file.bytes) {
        close(fd);
        return failed("is another file now:", ESTALE);
    }
    file.fd = keep_high(fd);
    return file.fd >= 0 ? FILE_WRITTEN : FILE_MISSED;
}

/* ---- the name ---- */

/* The n-th choice: what the user wrote; with .PID behind it; with another number. False when it does not fit. */
static bool choose_name(unsigned n) {
    if (!config_trace_file(file.path, sizeof file.path)) return false;
    const size_t length = strlen(file.path), room = sizeof file.path - length;
    int more = 0;
    if (n == 1) more = snprintf(file.path + length, room, ".%ld", (long)getpid());
    if (n > 1) more = snprintf(file.path + length, room, ".%ld.%u", (long)getpid(), n);
    return more >= 0 && (size_t)more < room;
}

/* A name that is taken by a plain file is left alone, and another one made of it. */
static int open_new(void) {
    for (unsigned n = 0; n < NAMES_MOST; n++) {
        if (!choose_name(n)) {
            errno = ENAMETOOLONG;
            return -1;
        }
        const int fd =
            open(file.path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600);
        if (fd >= 0 || errno != EEXIST) return fd;
        struct stat status;
        if (lstat(file.path, &status) == 0 && !S_ISREG(status.st_mode)) break;
    }
    errno = EEXIST;
    return -1;
}

/* ---- writing ---- */

/* A file with part of a block at its end is whole up to there. */
static enum file_result write_whole(const void *data, size_t bytes) {
    const char *at = data;
    while (bytes > 0) {
        const ssize_t written = write(file.fd, at, bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return failed("cannot write", written < 0 ? errno : ENOSPC);
        at += written;
        bytes -= (size_t)written;
        file.bytes += written;
    }
    return FILE_WRITTEN;
}

struct poolcuda_trace_moment file_moment(enum poolcuda_trace_counter counter) {
    struct poolcuda_trace_moment best = {0, 0};
    uint64_t least = UINT64_MAX;
    /* A thread that was interrupted between the two tries again. */
    for (int i = 0; i < 3; i++) {
        const uint64_t before = counter_now(counter), ns = counter_clock_ns(CLOCK_MONOTONIC);
        const uint64_t took = counter_now(counter) - before;
        if (took >= least) continue;
        least = took;
        best = (struct poolcuda_trace_moment){before + took / 2, ns};
    }
    if (counter == POOLCUDA_TRACE_NANOSECONDS) best.ns = best.counter;
    return best;
}

static void name_command(char *name, size_t size) {
    const int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    const ssize_t length = fd >= 0 ? read(fd, name, size - 1) : 0;
    if (fd >= 0) close(fd);
    if (length > 0) name[strcspn(name, "\n")] = '\0';
}

enum file_result file_create(enum poolcuda_trace_counter counter, unsigned time_shift) {
    struct poolcuda_trace_header header = {
        .magic = POOLCUDA_TRACE_MAGIC,
        .version = POOLCUDA_TRACE_VERSION,
        .header_bytes = sizeof header,
        .pid = (uint32_t)getpid(),
        .uid = (uint32_t)geteuid(),
        .counter = counter,
        .time_shift = time_shift,
        .begin = file_moment(counter),
        .begin_unix_ns = counter_clock_ns(CLOCK_REALTIME),
    };
    snprintf(header.library_version, sizeof header.library_version, "%s", POOLCUDA_VERSION);
    name_command(header.command, sizeof header.command);
    const int fd = open_new();
    if (fd < 0) return not_made(errno);
    file.fd = keep_high(fd);
    struct stat status;
    if (file.fd < 0 || fchmod(file.fd, 0600) != 0 || fstat(file.fd, &status) != 0) return failed("cannot keep", errno);
    file.device = status.st_dev;
    file.inode = status.st_ino;
    file.blocks = 0;
    file.bytes = 0;
    log_line(LOG_EVENT, "recording into %.*s", 512, file.path);
    return write_whole(&header, sizeof header);
}

enum file_result file_append(struct poolcuda_trace_block *block) {
    if (!is_there(file.fd)) {
        const enum file_result opened = open_again();
        if (opened != FILE_WRITTEN) return opened;
    }
    block->number = file.blocks;
    const enum file_result result = write_whole(block, block->bytes);
    file.blocks += result == FILE_WRITTEN;
    return result;
}

void file_forget(void) {
    if (is_there(file.fd)) close(file.fd);
    file.fd = -1;
}
