/* SPDX-License-Identifier: MIT
 *
 * Segments of figures as tests look at them: their names, worked out once more; their bytes; and a child that publishes
 * one and goes on step by step.
 */
#ifndef POOLCUDA_TEST_PUBLISHER_H
#define POOLCUDA_TEST_PUBLISHER_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "child.h"
#include "stats/segment.h"

/* Start time of a process in clock ticks after boot; 0 when it is gone. */
uint64_t shm_start_ticks(pid_t pid);

/* Path of the segment of one of our processes: by its start time, or as it runs. */
void shm_name_of(char path[PATH_MAX], pid_t pid, uint64_t start);
void shm_path_of(char path[PATH_MAX], pid_t pid);

bool shm_exists(const char *path); /* whatever it is */
bool shm_read(const char *path, struct segment_storage *storage);
void shm_write(const char *path, const void *bytes, size_t length); /* a new file */

/* Skips the case where /dev/shm cannot be written. */
void shm_need(void);

struct publisher {
    struct child child;
    int ready[2], go[2];
    bool finish;         /* end normally, else just end */
    mode_t mask;         /* its umask */
    char path[PATH_MAX]; /* of its segment */
    uint64_t start;
};

/* Start the child; returns when its segment is there. The next step ends the figures (if `finish`), the one after that
 * the process. */
void publisher_start(struct publisher *publisher);
void publisher_await(struct publisher *publisher);   /* until it has done its step */
void publisher_proceed(struct publisher *publisher); /* let it do the next */
void publisher_end(struct publisher *publisher);     /* both steps, without a word from the child */
void publisher_kill(struct publisher *publisher);
void publisher_close(struct publisher *publisher); /* wait for its end */

#endif
