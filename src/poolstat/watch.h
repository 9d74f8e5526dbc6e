/* SPDX-License-Identifier: MIT
 *
 * The segments of a program while it runs and after: each vanishes with its process, so that a descriptor is kept from
 * the moment at which it appears.
 */
#ifndef POOLSTAT_WATCH_H
#define POOLSTAT_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define WATCH_MOST 256u /* segments; what comes later is only counted */

struct watch {
    int fd;        /* of inotify: becomes readable when there may be a new one; −1 when it cannot be had */
    uint32_t root; /* the program; its descendants count too */
    uint64_t root_start_ticks;
    struct watched {
        int fd;
        dev_t device;
        ino_t inode;
        uint32_t pid, uid;
    } kept[WATCH_MOST];
    size_t count, missed;
};

void watch_start(struct watch *watch);
void watch_program(struct watch *watch, pid_t root); /* before it is waited for */

/* Keeps the new ones of the program and its descendants, or the program's alone when it has ended. */
void watch_look(struct watch *watch);
void watch_end(struct watch *watch);

#endif
