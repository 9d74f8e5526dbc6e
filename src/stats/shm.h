/* SPDX-License-Identifier: MIT
 *
 * Files that belong to a process, in /dev/shm: their names, their creation, and the removal of what dead processes have
 * left. Everything that can fail does so without a trace in the program: no signal, no output, no half-made file. Call
 * inside a guard.
 */
#ifndef POOLCUDA_STATS_SHM_H
#define POOLCUDA_STATS_SHM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHM_NAME_BYTES = 80 };

/* How all these files begin. The magic is written last: one that is killed before leaves a file that is known to be
 * unfinished. */
struct shm_head {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes;
    uint64_t total_bytes;
    uint32_t pid, uid;
    uint64_t start_ticks, pid_namespace;
};

/* Segments of figures (poolcuda/stats.h), and control files (poolcuda/control.h). */
enum shm_kind { SHM_SEGMENT, SHM_CONTROL, SHM_KINDS };

/* Make the file of `bytes`, zeroed, for the process of `identity` (its pid, uid, start_ticks and pid_namespace), and
 * write its name to `name`. Its pages are allocated: on a full tmpfs a store would end the program with SIGBUS. With
 * a segment, which every process has first, those of both kinds are removed that dead processes of the same user left.
 * The descriptor, open for reading and writing and closed on exec; or −1, with the step that failed in *step and its
 * reason in errno. */
int shm_create(enum shm_kind kind, const struct shm_head *identity, size_t bytes, char name[SHM_NAME_BYTES],
               const char **step);

#endif
