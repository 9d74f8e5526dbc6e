/* SPDX-License-Identifier: MIT
 *
 * Reading /proc.
 */
#include "procfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "memory.h"

#define FIRST_PID_NAMESPACE 0xEFFFFFFCu /* PROC_PID_INIT_INO, fixed in the kernel */

static struct procfs_process *all;
static size_t all_count;

/* What is remembered for a while, so that answers given again and again cost little: what /proc/PID/status has of a
 * process (its users may change, its inner pid does not), and that a process was looked for among all and not found:
 * what has ended does not come back, but one that was killed may leave its segment behind for days. */
#define REMEMBERED_NS UINT64_C(10000000000)
static struct memo {
    struct procfs_process process; /* pid 0: absent, by its inner pid */
    uint64_t until_ns;
} * memos;
static size_t memo_count;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* By pid, or of an absent one (0) by its inner pid; NULL when nothing is remembered. */
static const struct procfs_process *remembered(uint32_t pid, uint32_t inner_pid, uint64_t start_ticks) {
    for (size_t i = 0; i < memo_count; i++) {
        const struct procfs_process *process = &memos[i].process;
        if (process->pid == pid && process->start_ticks == start_ticks && (pid != 0 || process->inner_pid == inner_pid))
            return process;
    }
    return NULL;
}

static void remember(const struct procfs_process *process) {
    memos = memory_grow(memos, memo_count + 1, sizeof(*memos));
    memos[memo_count++] = (struct memo){*process, now_ns() + REMEMBERED_NS};
}

static void forget_old(void) {
    const uint64_t now = now_ns();
    size_t kept = 0;
    for (size_t i = 0; i < memo_count; i++)
        if (memos[i].until_ns > now) memos[kept++] = memos[i];
    memo_count = kept;
}

/* State, number of threads and start time. The command in field 2 may hold blanks and parentheses, so fields are
 * counted from the last one. */
static bool read_stat(uint32_t pid, char *state, long *threads, unsigned long long *start_ticks) {
    char path[64], line[1024];
    snprintf(path, sizeof(path), "/proc/%u/stat", pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const ssize_t length = read(fd, line, sizeof(line) - 1);
    close(fd);
    if (length <= 0) return false;
    line[length] = '\0';
    const char *rest = strrchr(line, ')');
    return rest != NULL &&
           sscanf(rest + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %ld %*s %llu", state,
                  threads, start_ticks) == 3;
}

static bool read_status(uint32_t pid, struct procfs_process *process) {
    char path[64], *line = NULL;
    size_t size = 0;
    bool has_uids = false;
    snprintf(path, sizeof(path), "/proc/%u/status", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    process->inner_pid = pid; /* kernels without pid namespaces say nothing else */
    while (getline(&line, &size, file) > 0) {
        if (strncmp(line, "Uid:", 4) == 0)
            has_uids = sscanf(line + 4, "%u %u %u %u", &process->uids[0], &process->uids[1], &process->uids[2],
                              &process->uids[3]) == 4;
        else if (strncmp(line, "NSpid:", 6) == 0)
            process->inner_pid = (uint32_t)strtoul(strrchr(line, '\t') + 1, NULL, 10);
    }
    free(line);
    fclose(file);
    return has_uids;
}

/* `known`: what is remembered of it will do. */
static bool read_process(uint32_t pid, bool known, struct procfs_process *process) {
    char state;
    long threads;
    unsigned long long start_ticks;
    *process = (struct procfs_process){.pid = pid};
    if (!read_stat(pid, &state, &threads, &start_ticks)) return false;
    process->start_ticks = start_ticks;
    const struct procfs_process *memo = known ? remembered(pid, 0, start_ticks) : NULL;
    if (memo != NULL)
        *process = *memo;
    else if (!read_status(pid, process))
        return false;
    else if (known)
        remember(process);
    /* A process whose first thread has ended looks dead while its others live. */
    return state != 'X' && (state != 'Z' || threads > 1);
}

bool procfs_read(uint32_t pid, struct procfs_process *process) {
    return read_process(pid, false, process);
}

static uint32_t parent_of(uint32_t pid) {
    char path[64], line[1024];
    unsigned parent = 0;
    snprintf(path, sizeof(path), "/proc/%u/stat", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return 0;
    line[fread(line, 1, sizeof(line) - 1, file)] = '\0';
    fclose(file);
    const char *rest = strrchr(line, ')');
    return rest != NULL && sscanf(rest + 1, " %*c %u", &parent) == 1 ? parent : 0;
}

bool procfs_descends(uint32_t pid, uint32_t ancestor) {
    while (pid > 1 && pid != ancestor) pid = parent_of(pid);
    return pid == ancestor;
}

uint32_t *procfs_pids(void) {
    size_t count = 0, capacity = 256;
    uint32_t *pids = memory_new(capacity, sizeof(*pids));
    DIR *folder = opendir("/proc");
    for (const struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        char *end;
        const unsigned long pid = strtoul(entry->d_name, &end, 10);
        if (*end != '\0' || pid == 0) continue;
        if (count + 1 == capacity) pids = memory_grow(pids, capacity *= 2, sizeof(*pids));
        pids[count++] = (uint32_t)pid;
    }
    if (folder != NULL) closedir(folder);
    pids[count] = 0;
    return pids;
}

static void read_all(void) {
    uint32_t *pids = procfs_pids();
    size_t count = 0;
    while (pids[count] != 0) count++;
    all = memory_new(count, sizeof(*all));
    for (size_t i = 0; i < count; i++)
        if (procfs_read(pids[i], &all[all_count])) all_count++;
    free(pids);
}

bool procfs_find(uint32_t inner_pid, uint64_t start_ticks, struct procfs_process *process) {
    if (read_process(inner_pid, true, process) && process->inner_pid == inner_pid &&
        process->start_ticks == start_ticks)
        return true;
    if (remembered(0, inner_pid, start_ticks) != NULL) return false;
    if (all == NULL) read_all();
    for (size_t i = 0; i < all_count; i++) {
        if (all[i].inner_pid != inner_pid || all[i].start_ticks != start_ticks) continue;
        return procfs_read(all[i].pid, process) && process->start_ticks == start_ticks;
    }
    remember(&(struct procfs_process){.inner_pid = inner_pid, .start_ticks = start_ticks});
    return false;
}

void procfs_forget(void) {
    free(all);
    all = NULL;
    all_count = 0;
    forget_old();
}

static bool runs_program(uint32_t pid, const char *program) {
    char link[64], path[4096];
    snprintf(link, sizeof(link), "/proc/%u/exe", pid);
    const ssize_t length = readlink(link, path, sizeof(path) - 1);
    if (length <= 0) return true; /* we may not know */
    path[length] = '\0';
    const char *slash = strrchr(path, '/');
    /* A name may be cut in the segment, and the link says when the file was deleted. */
    return strncmp(slash == NULL ? path : slash + 1, program, strlen(program)) == 0;
}

static bool maps_file(uint32_t pid, const char *file_name, uint64_t inode) {
    char path[64], *line = NULL;
    size_t size = 0;
    bool found = false;
    snprintf(path, sizeof(path), "/proc/%u/maps", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return true;
    while (!found && getline(&line, &size, file) > 0) {
        unsigned long long number;
        found =
            sscanf(line, "%*s %*s %*s %*s %llu", &number) == 1 && number == inode && strstr(line, file_name) != NULL;
    }
    free(line);
    fclose(file);
    return found;
}

bool procfs_still_runs(uint32_t pid, const char *program, const char *file_name, uint64_t inode) {
    return runs_program(pid, program) || maps_file(pid, file_name, inode);
}

uint64_t procfs_pid_namespace(uint32_t pid) {
    char path[64] = "/proc/self/ns/pid";
    struct stat status;
    if (pid != 0) snprintf(path, sizeof(path), "/proc/%u/ns/pid", pid);
    return stat(path, &status) == 0 ? status.st_ino : 0;
}

bool procfs_sees_all(void) {
    return procfs_pid_namespace(0) == FIRST_PID_NAMESPACE;
}
