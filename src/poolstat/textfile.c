/* SPDX-License-Identifier: MIT
 *
 * A reader sees the old file or the new one, whole: the text is written beside it, brought to the disk, and renamed.
 */
#include "textfile.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ending.h"
#include "memory.h"
#include "metrics.h"
#include "repeat.h"
#include "report.h"

#define READABLE 0644 /* node_exporter is another user */

static bool write_all(int fd, const char *text, size_t length) {
    while (length > 0) {
        const ssize_t written = write(fd, text, length);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return false;
        text += written;
        length -= (size_t)written;
    }
    return true;
}

/* False with errno. */
static bool replace(const char *folder, const struct exposition *text) {
    char *path = memory_format("%s/" TEXTFILE_NAME, folder);
    char *beside = memory_format("%s/." TEXTFILE_NAME ".XXXXXX", folder); /* the collector reads *.prom alone */
    const int fd = mkstemp(beside);
    bool done = fd >= 0;
    if (done) {
        done = write_all(fd, text->text, text->length) && fchmod(fd, READABLE) == 0 && fsync(fd) == 0;
        const int error = errno;
        const bool closed = close(fd) == 0;
        if (!done) errno = error;
        done = done && closed && rename(beside, path) == 0;
        if (!done) {
            const int reason = errno;
            unlink(beside);
            errno = reason;
        }
    }
    const int error = errno;
    free(path);
    free(beside);
    errno = error;
    return done;
}

static enum code code_of(int error) {
    switch (error) {
    case ENOENT:
    case ENOTDIR:
        return CODE_USAGE;
    case EACCES:
    case EPERM:
    case EROFS:
        return CODE_DENIED;
    default:
        return CODE_FAILED;
    }
}

static bool write_once(const struct options *options, struct metrics *metrics) {
    struct exposition text = {0};
    metrics_write(metrics, options, &text);
    const bool done = replace(options->textfile, &text);
    const int error = errno;
    free(text.text);
    errno = error;
    return done;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* False when the end came before. */
static bool wait_until(uint64_t time_ns) {
    for (uint64_t now; !ending_came() && (now = now_ns()) < time_ns;) ending_wait(-1, time_ns - now);
    return !ending_came();
}

static void remove_file(const char *folder) {
    char *path = memory_format("%s/" TEXTFILE_NAME, folder);
    unlink(path);
    free(path);
}

/* A disk that is full at times is no reason to end: said once, and tried again. */
static int write_repeatedly(const struct options *options, struct metrics *metrics) {
    const uint64_t delay = options->delay_ns == 0 ? REPEAT_DEFAULT_NS : options->delay_ns;
    int told = 0;
    ending_watch();
    uint64_t next = now_ns();
    for (uint64_t turn = 1;; turn++) {
        const int error = write_once(options, metrics) ? 0 : errno;
        if (error != 0 && turn == 1)
            return report(options, code_of(error), "cannot write %s/" TEXTFILE_NAME ": %s", options->textfile,
                          strerror(error));
        if (error != 0 && error != told)
            report_note("cannot write %s/" TEXTFILE_NAME ": %s; trying again", options->textfile, strerror(error));
        told = error;
        if (turn == options->count) return error == 0 ? CODE_OK : (int)code_of(error);
        const uint64_t now = now_ns();
        next = next + delay < now ? now : next + delay; /* what was missed is not made up for */
        if (wait_until(next)) continue;
        remove_file(options->textfile);
        return CODE_OK;
    }
}

int textfile_write(const struct options *options) {
    struct metrics metrics = {0};
    int code = CODE_OK;
    if (repeat_is_asked(options))
        code = write_repeatedly(options, &metrics);
    else if (!write_once(options, &metrics))
        code = report(options, code_of(errno), "cannot write %s/" TEXTFILE_NAME ": %s", options->textfile,
                      strerror(errno));
    metrics_free(&metrics);
    return code;
}
