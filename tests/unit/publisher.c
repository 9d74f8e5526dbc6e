/* SPDX-License-Identifier: MIT
 *
 * Segments on the disk, and the child that publishes one.
 */
#include "publisher.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "support/testing.h"

#include "stats/writer.h"

/* Start time of a process: the 20th word after the command's closing bracket. */
uint64_t shm_start_ticks(pid_t pid) {
    char path[64], text[2048];
    uint64_t ticks = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) return 0;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    char *word = strtok(strrchr(text, ')') + 1, " ");
    for (int i = 1; i < 20; i++) word = strtok(NULL, " ");
    sscanf(word, "%" SCNu64, &ticks);
    return ticks;
}

void shm_name_of(char path[PATH_MAX], pid_t pid, uint64_t start) {
    snprintf(path, PATH_MAX, "/dev/shm/poolcuda-%u-%ld-%" PRIu64, (unsigned)geteuid(), (long)pid, start);
}

void shm_path_of(char path[PATH_MAX], pid_t pid) {
    shm_name_of(path, pid, shm_start_ticks(pid));
}

bool shm_exists(const char *path) {
    struct stat file;
    return lstat(path, &file) == 0;
}

bool shm_read(const char *path, struct segment_storage *storage) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const bool whole = fd >= 0 && read(fd, storage, sizeof *storage) == (ssize_t)sizeof *storage;
    if (fd >= 0) close(fd);
    return whole;
}

void shm_write(const char *path, const void *bytes, size_t length) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, length), length);
    close(fd);
}

void shm_need(void) {
    if (access("/dev/shm", W_OK) == 0) return;
    print_message("/dev/shm cannot be written\n");
    skip();
}

static void publisher_step(struct publisher *publisher) {
    char byte = 'r';
    if (write(publisher->ready[1], &byte, 1) != 1 || read(publisher->go[0], &byte, 1) < 0) _exit(CHILD_FAILED);
}

static int publish(void *arg) {
    struct publisher *publisher = arg;
    close(publisher->ready[0]);
    close(publisher->go[1]);
    umask(publisher->mask);
    setenv("POOL_TRIM_MB", "9", 1);
    stats_start(true);
    CHECK_EQUAL(umask(publisher->mask), publisher->mask);
    if (stats_header()->state != POOLCUDA_RUNNING) CHILD_SKIP("no segment can be made in /dev/shm\n");
    publisher_step(publisher);
    if (publisher->finish) stats_finish();
    publisher_step(publisher);
    return 0;
}

void publisher_await(struct publisher *publisher) {
    char byte;
    if (read(publisher->ready[0], &byte, 1) != 1) {
        child_wait(&publisher->child);
        child_judge(&publisher->child);
        fail_msg("the publisher ended early: %s", publisher->child.text);
    }
}

void publisher_proceed(struct publisher *publisher) {
    assert_int_equal(write(publisher->go[1], "g", 1), 1);
}

void publisher_start(struct publisher *publisher) {
    assert_int_equal(pipe(publisher->ready), 0);
    assert_int_equal(pipe(publisher->go), 0);
    child_start(&publisher->child, publish, publisher);
    close(publisher->ready[1]);
    close(publisher->go[0]);
    publisher_await(publisher);
    publisher->start = shm_start_ticks(publisher->child.pid);
    shm_name_of(publisher->path, publisher->child.pid, publisher->start);
}

void publisher_close(struct publisher *publisher) {
    close(publisher->ready[0]);
    close(publisher->go[1]);
    child_wait(&publisher->child);
}

void publisher_end(struct publisher *publisher) {
    publisher_proceed(publisher);
    publisher_await(publisher);
    publisher_proceed(publisher);
    publisher_close(publisher);
    child_judge(&publisher->child);
    assert_string_equal(publisher->child.text, "");
}

void publisher_kill(struct publisher *publisher) {
    kill(publisher->child.pid, SIGKILL);
    publisher_close(publisher);
}
