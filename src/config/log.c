/* SPDX-License-Identifier: MIT
 *
 * The log. A file is opened for each line: nothing of ours stays open in the guest, which may close all its
 * descriptors or fork at any moment, and lines of many threads and processes are appended whole.
 */
#include "config/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "config/config.h"
#include "config/guard.h"

enum { LINE_BYTES = 1024 };

static bool file_failed;

/* Once, unless silence is asked for: logging goes to stderr from then on. Inside a guard. */
static void complain(const char *path, int error) {
    const struct config *config = config_get();
    const char *reason = strerrordesc_np(error);
    if (__atomic_exchange_n(&file_failed, true, __ATOMIC_RELAXED)) return;
    if (config->log_level == 0 && config_is_set(config, "POOL_LOG")) return;
    char line[LINE_BYTES];
    const int length =
        snprintf(line, sizeof line, "poolcuda: POOL_LOG_FILE: %.*s cannot be opened (%s); logging to stderr\n",
                 LINE_BYTES / 2, path, reason == NULL ? "unknown error" : reason);
    guard_write(STDERR_FILENO, line, (size_t)length);
}

int log_wants(enum log_level level) {
    return config_get()->log_level >= (int)level;
}

/* The log file, opened for one line; -1 when there is none or it has failed: stderr is to be used. Inside a guard. */
static int open_file(const char *path) {
    if (path == NULL || __atomic_load_n(&file_failed, __ATOMIC_RELAXED)) return -1;
    /* O_NONBLOCK: a FIFO that nobody reads must not stop the program. */
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, 0600);
    if (fd < 0) complain(path, errno);
    return fd;
}

/* Why no line could go into the file; 0 where one could, as far as that can be told without making or opening it. In
 * one thread. */
static int trouble_with(const char *path) {
    static char folder[PATH_MAX]; /* rather than on the caller's stack */
    struct stat file;
    if (lstat(path, &file) == 0) {
        if (S_ISDIR(file.st_mode)) return EISDIR;
        if (S_ISLNK(file.st_mode)) return ELOOP;
        return access(path, W_OK) == 0 ? 0 : errno;
    }
    if (errno != ENOENT) return errno;
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') + 1 - path), path); /* it is absolute */
    return access(folder, W_OK | X_OK) == 0 ? 0 : errno;
}

static void look_at_file(void) {
    const char *path = config_get()->log_file;
    struct guard guard;
    if (path == NULL) return;
    guard_enter(&guard);
    const int error = trouble_with(path);
    if (error != 0) complain(path, error);
    guard_leave(&guard);
}

void log_begin(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, look_at_file);
}

static size_t format_line(char *line, size_t size, enum log_level level, const char *format, va_list arguments) {
    static const char *const names[] = {"warning", "warning", "event", "detail"};
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const size_t room = size - 1; /* for the newline */
    size_t length = (size_t)snprintf(line, room, "poolcuda[%ld] %lld.%06ld %s: ", (long)getpid(), (long long)now.tv_sec,
                                     now.tv_nsec / 1000, names[level]);
    const int more = vsnprintf(line + length, room - length, format, arguments);
    if (more > 0) length += (size_t)more;
    if (length >= room) {
        length = room - 1;
        memcpy(line + length - 3, "...", 3);
    }
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f) line[i] = '?';
    }
    line[length++] = '\n';
    return length;
}

void log_line(enum log_level level, const char *format, ...) {
    if (!log_wants(level)) return;
    struct guard guard;
    guard_enter(&guard);
    char line[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    const size_t length = format_line(line, sizeof line, level, format, arguments);
    va_end(arguments);
    const int fd = open_file(config_get()->log_file);
    guard_write(fd >= 0 ? fd : STDERR_FILENO, line, length);
    if (fd >= 0) close(fd);
    guard_leave(&guard);
}
