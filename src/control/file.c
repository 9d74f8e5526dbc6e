/* SPDX-License-Identifier: MIT
 *
 * The file is read and written by its descriptor, as long as that is still the file's. It is mapped as well, but only
 * as the place of futexes: the mapping is never touched, so nobody can have the process killed by cutting the file, and
 * the kernel only answers EFAULT then.
 */
#include "control/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "stats/identity.h"
#include "stats/shm.h"

enum { DESCRIPTOR_HIGH = 100, DESCRIPTOR_LOWEST = 3 }; /* under a number that programs do not expect to be theirs */
enum { COPIES = 20 };                                  /* tries for a whole one, a millisecond apart */

static struct {
    int fd; /* −1: none */
    dev_t device;
    ino_t inode;
    char *page;    /* not to be touched; NULL: none */
    bool readable; /* as control_file_request found it, */
    uint32_t seen; /* and what that saw */
    uint32_t turn;
    char name[SHM_NAME_BYTES];
} file = {.fd = -1};

static void sleep_ms(unsigned ms) {
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&time, NULL);
}

/* ---- the descriptor ---- */

static bool is_ours(const struct stat *status) {
    return status->st_dev == file.device && status->st_ino == file.inode;
}

static bool is_there(void) {
    struct stat status;
    return file.fd >= 0 && fstat(file.fd, &status) == 0 && is_ours(&status);
}

static int keep_high(int fd) {
    int kept = fcntl(fd, F_DUPFD_CLOEXEC, DESCRIPTOR_HIGH);
    if (kept < 0) kept = fcntl(fd, F_DUPFD_CLOEXEC, DESCRIPTOR_LOWEST);
    const int error = errno;
    close(fd);
    errno = error;
    return kept;
}

/* The program may have closed it, as daemons close what they do not know, and opened one of its own by that number. */
static bool have_descriptor(void) {
    if (is_there()) return true;
    file.fd = -1;
    const int fd = shm_open(file.name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) return false;
    file.fd = keep_high(fd);
    if (is_there()) return true;
    if (file.fd >= 0) close(file.fd);
    file.fd = -1;
    return false;
}

/* ---- making ---- */

static bool describe(int fd, const struct shm_head *identity) {
    struct poolcuda_control_header header = {
        .magic = POOLCUDA_CONTROL_MAGIC,
        .version = POOLCUDA_CONTROL_VERSION,
        .header_bytes = sizeof header,
        .total_bytes = POOLCUDA_CONTROL_BYTES,
        .pid = identity->pid,
        .uid = identity->uid,
        .start_ticks = identity->start_ticks,
        .pid_namespace = identity->pid_namespace,
    };
    return pwrite(fd, &header, sizeof header, 0) == (ssize_t)sizeof header;
}

static bool keep(int fd) {
    struct stat status;
    file.fd = keep_high(fd);
    if (file.fd < 0 || fstat(file.fd, &status) != 0) return false;
    file.device = status.st_dev;
    file.inode = status.st_ino;
    void *page = mmap(NULL, POOLCUDA_CONTROL_BYTES, PROT_READ, MAP_SHARED, file.fd, 0);
    if (page == MAP_FAILED) return false;
    (void)madvise(page, POOLCUDA_CONTROL_BYTES, MADV_DONTFORK);
    file.page = page;
    return true;
}

bool control_file_make(const char **step) {
    const struct shm_head identity = {.pid = (uint32_t)getpid(),
                                      .uid = (uint32_t)geteuid(),
                                      .start_ticks = identity_own_start_ticks(),
                                      .pid_namespace = identity_pid_namespace()};
    const int fd = shm_create(SHM_CONTROL, &identity, POOLCUDA_CONTROL_BYTES, file.name, step);
    if (fd < 0) return false;
    file.turn = file.seen = 0;
    file.readable = false;
    *step = "write";
    const bool described = describe(fd, &identity);
    if (described) *step = "keep";
    if (described && keep(fd)) return true;
    const int error = errno;
    if (!described) close(fd);
    shm_unlink(file.name);
    control_file_forget();
    errno = error;
    return false;
}

/* ---- records ---- */

bool control_file_request(struct poolcuda_control_request *request) {
    for (int i = 0; i < COPIES; i++) {
        if (i > 0) sleep_ms(1);
        file.readable = have_descriptor() && pread(file.fd, request, sizeof *request, POOLCUDA_CONTROL_REQUEST_AT) ==
                                                 (ssize_t)sizeof *request;
        if (!file.readable) return false;
        file.seen = request->sequence;
        if (request->sequence == 0) return false;
        if (request->check == POOLCUDA_CONTROL_CHECK_OF(request)) return true;
    }
    return false;
}

void control_file_answer(struct poolcuda_control_answer *answer) {
    answer->turn = ++file.turn;
    answer->check = POOLCUDA_CONTROL_CHECK_OF(answer);
    if (!have_descriptor()) return;
    if (pwrite(file.fd, answer, sizeof *answer, POOLCUDA_CONTROL_ANSWER_AT) != (ssize_t)sizeof *answer) return;
    const char *turn = file.page + POOLCUDA_CONTROL_ANSWER_AT + offsetof(struct poolcuda_control_answer, turn);
    syscall(SYS_futex, turn, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void control_file_wait(void) {
    const char *at = file.page + POOLCUDA_CONTROL_REQUEST_AT + offsetof(struct poolcuda_control_request, sequence);
    if (file.readable &&
        (syscall(SYS_futex, at, FUTEX_WAIT, file.seen, NULL, NULL, 0) == 0 || errno == EAGAIN || errno == EINTR))
        return;
    sleep_ms(1000);
}

/* ---- the end ---- */

void control_file_remove(void) {
    struct stat status;
    const int directory = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) return;
    if (fstatat(directory, file.name + 1, &status, AT_SYMLINK_NOFOLLOW) == 0 && is_ours(&status))
        unlinkat(directory, file.name + 1, 0);
    close(directory);
}

void control_file_forget(void) {
    if (is_there()) close(file.fd);
    file.fd = -1;
    file.page = NULL; /* a child has no such mapping */
}
