/* SPDX-License-Identifier: MIT
 *
 * One request: the file is opened and checked, locked against others who ask, written, and its answer awaited.
 */
#include "ask.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "memory.h"
#include "procfs.h"

#define LOCK_STEP_NS 10000000
#define LOOK_NS 100000000 /* whether the process still runs, while its answer is awaited */

struct asking {
    const struct process *process;
    int fd;
    char *page; /* the place of futexes; NULL: the file could not be mapped */
    uint64_t deadline_ns;
    char *why;
};

static uint64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct timespec span(uint64_t ns) {
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
}

static uint64_t time_left(const struct asking *asking) {
    const uint64_t now = clock_ns();
    return now < asking->deadline_ns ? asking->deadline_ns - now : 0;
}

static bool still_runs(const struct process *process) {
    struct procfs_process now;
    if (process->liveness != LIVENESS_ALIVE) return true; /* it cannot be seen from here */
    return procfs_read(process->pid, &now) && now.start_ticks == process->file.start_ticks;
}

/* ---- signals ---- */

static volatile sig_atomic_t interrupted;
static const int ending_signals[] = {SIGINT, SIGTERM, SIGHUP};
enum { SIGNALS = sizeof(ending_signals) / sizeof(ending_signals[0]) };

static void note_signal(int number) {
    interrupted = number;
}

static void catch_signals(struct sigaction before[SIGNALS]) {
    const struct sigaction note = {.sa_handler = note_signal};
    interrupted = 0;
    for (int i = 0; i < SIGNALS; i++) sigaction(ending_signals[i], &note, &before[i]);
}

static void pass_signals(const struct sigaction before[SIGNALS]) {
    for (int i = 0; i < SIGNALS; i++) sigaction(ending_signals[i], &before[i], NULL);
    if (interrupted != 0) raise(interrupted);
}

/* ---- the file ---- */

/* Beside the segment, under the name that the process gave it. */
static char *control_path(const struct found *segment) {
    const char *slash = strrchr(segment->path, '/');
    return memory_format("%.*s/" POOLCUDA_CONTROL_PREFIX "%u-%u-%llu", (int)(slash - segment->path), segment->path,
                         segment->uid, segment->pid, (unsigned long long)segment->start_ticks);
}

static enum ask_result open_file(struct asking *asking) {
    char *path = control_path(&asking->process->file);
    asking->fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const int error = errno;
    free(path);
    if (asking->fd >= 0) return ASK_ANSWERED;
    if (error == ENOENT) return ASK_NO_FILE;
    if (error == EACCES || error == EPERM) return ASK_DENIED;
    snprintf(asking->why, ASK_WHY_SIZE, "%s",
             error == ELOOP ? "is a symbolic link, which no program of ours makes" : strerror(error));
    return ASK_DAMAGED;
}

static enum ask_result damaged(struct asking *asking, const char *how) {
    snprintf(asking->why, ASK_WHY_SIZE, "%s", how);
    return ASK_DAMAGED;
}

static enum ask_result check_file(struct asking *asking) {
    struct stat status;
    struct poolcuda_control_header header;
    if (fstat(asking->fd, &status) != 0 || !S_ISREG(status.st_mode)) return damaged(asking, "is no ordinary file");
    if (status.st_uid != asking->process->file.owner) return ASK_DENIED;
    if (geteuid() != 0 && status.st_uid != geteuid()) return ASK_DENIED;
    if (status.st_size < (off_t)POOLCUDA_CONTROL_BYTES ||
        pread(asking->fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header))
        return damaged(asking, "is cut short");
    if (memcmp(header.magic, POOLCUDA_CONTROL_MAGIC, sizeof(header.magic)) != 0)
        return damaged(asking, "does not begin as one");
    if (header.version != POOLCUDA_CONTROL_VERSION) {
        snprintf(asking->why, ASK_WHY_SIZE, "has layout %u, and this poolstat knows %u: use the one of its library",
                 header.version, POOLCUDA_CONTROL_VERSION);
        return ASK_DAMAGED;
    }
    if (header.pid != asking->process->file.pid || header.start_ticks != asking->process->file.start_ticks)
        return damaged(asking, "belongs to another process");
    return ASK_ANSWERED;
}

/* Until nobody else asks. */
static enum ask_result lock_file(const struct asking *asking) {
    while (flock(asking->fd, LOCK_EX | LOCK_NB) != 0) {
        const struct timespec step = span(LOCK_STEP_NS);
        if (interrupted != 0 || time_left(asking) == 0) return ASK_BUSY;
        nanosleep(&step, NULL);
    }
    return ASK_ANSWERED;
}

/* ---- records ---- */

/* A whole copy; false when it was being written, or is none. */
static bool read_answer(const struct asking *asking, struct poolcuda_control_answer *answer) {
    return pread(asking->fd, answer, sizeof(*answer), POOLCUDA_CONTROL_ANSWER_AT) == (ssize_t)sizeof(*answer) &&
           answer->check == POOLCUDA_CONTROL_CHECK_OF(answer);
}

static bool write_request(const struct asking *asking, struct poolcuda_control_request *request) {
    request->check = POOLCUDA_CONTROL_CHECK_OF(request);
    if (pwrite(asking->fd, request, sizeof(*request), POOLCUDA_CONTROL_REQUEST_AT) != (ssize_t)sizeof(*request))
        return false;
    if (asking->page == NULL) return true;
    const char *place =
        asking->page + POOLCUDA_CONTROL_REQUEST_AT + offsetof(struct poolcuda_control_request, sequence);
    syscall(SYS_futex, place, FUTEX_WAKE, 1, NULL, NULL, 0);
    return true;
}

static uint32_t next_sequence(const struct asking *asking) {
    struct poolcuda_control_request request = {0};
    struct poolcuda_control_answer answer = {0};
    (void)!pread(asking->fd, &request, sizeof(request), POOLCUDA_CONTROL_REQUEST_AT);
    (void)!pread(asking->fd, &answer, sizeof(answer), POOLCUDA_CONTROL_ANSWER_AT);
    uint32_t sequence = request.sequence + 1;
    while (sequence == 0 || sequence == answer.sequence) sequence++;
    return sequence;
}

/* Until the answer's turn is another one, for a while at most. */
static void wait_for_turn(const struct asking *asking, uint32_t turn) {
    const uint64_t left = time_left(asking);
    struct timespec time = span(left < LOOK_NS ? left : LOOK_NS);
    const char *place = asking->page + POOLCUDA_CONTROL_ANSWER_AT + offsetof(struct poolcuda_control_answer, turn);
    if (asking->page != NULL && (syscall(SYS_futex, place, FUTEX_WAIT, turn, &time, NULL, 0) == 0 || errno == EAGAIN ||
                                 errno == EINTR || errno == ETIMEDOUT))
        return;
    time = span(left < LOCK_STEP_NS ? left : LOCK_STEP_NS);
    nanosleep(&time, NULL);
}

static enum ask_result await_answer(const struct asking *asking, uint32_t sequence,
                                    struct poolcuda_control_answer *answer) {
    *answer = (struct poolcuda_control_answer){0};
    for (;;) {
        const bool ended = !still_runs(asking->process); /* before the last look at what it said */
        const bool whole = read_answer(asking, answer), ours = whole && answer->sequence == sequence;
        if (ours && answer->code != POOLCUDA_CONTROL_CODE_taken) return ASK_ANSWERED;
        if (ended) return ASK_ENDED;
        if (interrupted != 0 || time_left(asking) == 0) return ours ? ASK_UNDER_WAY : ASK_SILENT;
        wait_for_turn(asking, answer->turn);
    }
}

/* Before it is taken up. */
static enum ask_result withdraw(const struct asking *asking, struct poolcuda_control_request *request) {
    struct poolcuda_control_answer answer;
    request->command = POOLCUDA_CONTROL_COMMAND_none;
    request->value = 0;
    write_request(asking, request);
    const bool taken = read_answer(asking, &answer) && answer.sequence == request->sequence;
    return taken && answer.code == POOLCUDA_CONTROL_CODE_taken ? ASK_UNDER_WAY : ASK_SILENT;
}

static enum ask_result ask_in_file(struct asking *asking, enum poolcuda_control_command command, uint64_t value,
                                   struct poolcuda_control_answer *answer) {
    enum ask_result result = check_file(asking);
    if (result == ASK_ANSWERED) result = lock_file(asking);
    if (result != ASK_ANSWERED) return result;
    void *page = mmap(NULL, POOLCUDA_CONTROL_BYTES, PROT_READ, MAP_SHARED, asking->fd, 0);
    asking->page = page == MAP_FAILED ? NULL : page;
    struct poolcuda_control_request request = {.sequence = next_sequence(asking), .command = command, .value = value};
    if (!write_request(asking, &request)) {
        snprintf(asking->why, ASK_WHY_SIZE, "could not be written: %s", strerror(errno));
        result = ASK_DAMAGED;
    } else {
        result = await_answer(asking, request.sequence, answer);
        if (result == ASK_SILENT) result = withdraw(asking, &request);
    }
    if (asking->page != NULL) munmap(asking->page, POOLCUDA_CONTROL_BYTES);
    return result;
}

enum ask_result ask(const struct process *process, enum poolcuda_control_command command, uint64_t value,
                    uint64_t timeout_ns, struct poolcuda_control_answer *answer, char why[ASK_WHY_SIZE]) {
    struct asking asking = {.process = process, .deadline_ns = clock_ns() + timeout_ns, .why = why};
    struct sigaction before[SIGNALS];
    why[0] = '\0';
    enum ask_result result = open_file(&asking);
    if (result != ASK_ANSWERED) return result;
    catch_signals(before);
    result = ask_in_file(&asking, command, value, answer);
    close(asking.fd); /* and gives up the lock */
    pass_signals(before);
    return result;
}
