/* SPDX-License-Identifier: MIT
 *
 * Reads every segment and decides about its process. The name of a file is only a claim: anybody may put files into
 * /dev/shm, so one whose owner is not its process's user is left out.
 */
#include "collect.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "memory.h"
#include "procfs.h"

/* Of a process that changes its user, the file may still belong to root. */
static bool may_own(uid_t owner, const struct procfs_process *process) {
    if (owner == 0) return true;
    for (size_t i = 0; i < 4; i++)
        if (process->uids[i] == owner) return true;
    return false;
}

static bool names_its_process(struct process *process) {
    const struct poolcuda_header *header = &process->segment->header;
    if (header->pid == process->file.pid && header->start_ticks == process->file.start_ticks) return true;
    snprintf(process->why, sizeof(process->why), "is damaged: it belongs to pid %u by its name and to pid %u by itself",
             process->file.pid, header->pid);
    return false;
}

static int open_segment(struct process *process) {
    const int fd = open(process->file.path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat status;
    if (fd < 0) {
        if (errno == ENOENT) process->liveness = LIVENESS_ENDED;
        process->code = errno == EACCES || errno == EPERM ? CODE_DENIED : CODE_DAMAGED;
        snprintf(process->why, sizeof(process->why), "could not be opened: %s", strerror(errno));
        return -1;
    }
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) return fd;
    process->code = CODE_DAMAGED;
    snprintf(process->why, sizeof(process->why), "is no ordinary file");
    close(fd);
    return -1;
}

static void read_segment(struct process *process) {
    const int fd = open_segment(process);
    struct timespec now;
    if (fd < 0) return;
    process->code = segment_read(fd, &process->segment, process->why) == SEGMENT_READ ? CODE_OK : CODE_DAMAGED;
    clock_gettime(CLOCK_REALTIME, &now);
    process->read_unix_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    close(fd);
    if (process->code == CODE_OK && !names_its_process(process)) {
        segment_free(process->segment);
        process->segment = NULL;
        process->code = CODE_DAMAGED;
    }
}

/* Another process may have the same pid in another namespace, and the same start time. */
static bool is_of_other_namespace(const struct process *process) {
    if (process->segment == NULL || process->segment->header.pid_namespace == 0) return false;
    const uint64_t seen = procfs_pid_namespace(process->pid);
    return seen != 0 && seen != process->segment->header.pid_namespace;
}

/* exec keeps pid and start time, and the segment of the program that was there before stays behind. */
static bool is_of_earlier_program(const struct process *process) {
    char command[sizeof(process->segment->header.command) + 1] = {0};
    if (process->segment == NULL) return false;
    memcpy(command, process->segment->header.command, sizeof(process->segment->header.command));
    return !procfs_still_runs(process->pid, command, strrchr(process->file.path, '/') + 1, process->file.inode);
}

static void identify(struct process *process, const struct procfs_process *owner) {
    process->liveness = LIVENESS_ALIVE;
    process->pid = owner->pid;
    read_segment(process);
    if (process->liveness == LIVENESS_ALIVE &&
        (is_of_other_namespace(process) || is_of_earlier_program(process) ||
         (process->segment != NULL && process->segment->header.state == POOLCUDA_ENDED)))
        process->liveness = LIVENESS_ENDED;
}

/* No process that we see fits. It has ended, unless it runs where we cannot see it. */
static void look_for_unseen(struct process *process, bool ended_too) {
    const bool sees_all = procfs_sees_all();
    process->liveness = LIVENESS_ENDED;
    if (sees_all && !ended_too) return;
    read_segment(process);
    if (sees_all || process->segment == NULL || process->segment->header.state == POOLCUDA_ENDED) return;
    const uint64_t namespace = process->segment->header.pid_namespace;
    if (namespace != 0 && namespace != procfs_pid_namespace(0)) process->liveness = LIVENESS_UNSEEN;
}

static int by_pid(const void *a, const void *b) {
    const struct process *left = a, *right = b;
    if (left->pid != right->pid) return left->pid < right->pid ? -1 : 1;
    return left->inner_pid < right->inner_pid ? -1 : left->inner_pid > right->inner_pid;
}

void collect(struct collection *collection, bool ended_too) {
    struct found *files;
    const size_t count = find_segments(&files);
    collection->processes = memory_new(count, sizeof(*collection->processes));
    collection->count = 0;
    for (size_t i = 0; i < count; i++) {
        struct process *process = &collection->processes[collection->count];
        struct procfs_process owner;
        *process = (struct process){.file = files[i], .inner_pid = files[i].pid};
        if (!procfs_find(files[i].pid, files[i].start_ticks, &owner))
            look_for_unseen(process, ended_too);
        else if (may_own(files[i].owner, &owner))
            identify(process, &owner);
        else {
            free(files[i].path);
            continue;
        }
        collection->count++;
    }
    free(files); /* the paths live on in the processes */
    procfs_forget();
    qsort(collection->processes, collection->count, sizeof(*collection->processes), by_pid);
}

void collect_free_process(struct process *process) {
    free(process->file.path);
    segment_free(process->segment);
}

void collect_free(struct collection *collection) {
    for (size_t i = 0; i < collection->count; i++) collect_free_process(&collection->processes[i]);
    free(collection->processes);
    *collection = (struct collection){0};
}
