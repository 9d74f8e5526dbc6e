/* SPDX-License-Identifier: MIT
 *
 * Finds the files of segments: in /dev/shm, and in the /dev/shm of every process that has one of its own (containers).
 */
#ifndef POOLSTAT_FIND_H
#define POOLSTAT_FIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A file with a segment's name. What the name says is the owner's own view of itself. */
struct found {
    char *path;
    dev_t device; /* with inode: the same file seen through two folders is listed once */
    ino_t inode;
    uid_t owner;
    uint32_t uid, pid;
    uint64_t start_ticks;
};

const char *find_folder(void);                               /* /dev/shm, or what stands in its place */
bool find_parse_name(const char *name, struct found *found); /* false: it is no segment's */

/* The caller gives *files back to find_free. */
size_t find_segments(struct found **files);
void find_free(struct found *files, size_t count);

#endif
