/* SPDX-License-Identifier: MIT
 *
 * Processes as /proc shows them. A segment names its owner by the pid in the owner's own namespace and by its start
 * time; here the process that this means is found, or found to be gone.
 */
#ifndef POOLSTAT_PROCFS_H
#define POOLSTAT_PROCFS_H

#include <stdbool.h>
#include <stdint.h>

struct procfs_process {
    uint32_t pid;       /* as we see it */
    uint32_t inner_pid; /* in its own pid namespace */
    uint64_t start_ticks;
    uint32_t uids[4]; /* real, effective, saved, file system */
};

/* False when there is no such process, or it has ended and only waits for its parent. */
bool procfs_read(uint32_t pid, struct procfs_process *process);

/* The process with this pid in its own namespace. The list of all is read at the first call for which a look at `pid`
 * is not enough; procfs_forget drops it. */
bool procfs_find(uint32_t inner_pid, uint64_t start_ticks, struct procfs_process *process);
void procfs_forget(void);

/* `pid` is `ancestor`, or was started by it or by what that started, and none in between has ended. */
bool procfs_descends(uint32_t pid, uint32_t ancestor);

/* Every pid that we see, ended by 0. The caller frees it. */
uint32_t *procfs_pids(void);

/* False when the process runs a program of another name and has no file of this name and inode mapped. */
bool procfs_still_runs(uint32_t pid, const char *program, const char *file_name, uint64_t inode);

uint64_t procfs_pid_namespace(uint32_t pid); /* its number; 0 when we may not know it. pid 0: our own */
bool procfs_sees_all(void);                  /* we are in the machine's first pid namespace */

#endif
