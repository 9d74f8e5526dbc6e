/* SPDX-License-Identifier: MIT
 *
 * No room, no rights, limits: without a segment the program runs on, and nothing but the log tells of it.
 */
#include "support/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "child.h"
#include "publisher.h"
#include "stats/writer.h"

static int start_quietly(void) {
    const struct poolcuda_event event = {.type = POOLCUDA_EVENT_growth};
    const int before = open_descriptors();
    errno = 4321;
    stats_start(true);
    CHECK_EQUAL(errno, 4321);
    CHECK_EQUAL(open_descriptors(), before);
    CHECK_EQUAL(stats_header()->state, POOLCUDA_STARTING);
    struct poolcuda_pool *pool = stats_pool_open();
    stats_pool_publish(pool);
    stats_add(&stats_cell_open(pool, 0, 0)->classes[3].allocs, 1);
    stats_event(&event);
    stats_pass(POOLCUDA_PASS_foreign);
    CHECK_EQUAL(stats_header()->pass_through[POOLCUDA_PASS_foreign], 1);
    stats_finish();
    return 0;
}

static int start_with_file_size_limit(void *arg) {
    (void)arg;
    const struct rlimit limit = {4096, 4096};
    signal(SIGXFSZ, SIG_DFL);
    setrlimit(RLIMIT_FSIZE, &limit);
    start_quietly();
    char path[PATH_MAX];
    shm_path_of(path, getpid());
    CHECK(!shm_exists(path), "a half-made file stayed\n");
    return 0;
}

static void a_file_size_limit_does_not_end_the_program(void **state) {
    (void)state;
    assert_string_equal(child_run(start_with_file_size_limit, NULL), "");
}

static int start_without_descriptors(void *arg) {
    (void)arg;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    const int before = open_descriptors();
    const rlim_t soft = limit.rlim_cur;
    limit.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &limit);
    errno = 4321;
    stats_start(true);
    CHECK_EQUAL(errno, 4321);
    limit.rlim_cur = soft;
    setrlimit(RLIMIT_NOFILE, &limit);
    CHECK_EQUAL(open_descriptors(), before);
    CHECK_EQUAL(stats_header()->state, POOLCUDA_STARTING);
    stats_finish();
    return 0;
}

static void a_program_out_of_descriptors_runs_without_figures(void **state) {
    (void)state;
    assert_string_equal(child_run(start_without_descriptors, NULL), "");
}

static void write_own(const char *path, const char *text) {
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        CHILD_SKIP("cannot write %s: %s\n", path, strerror(errno));
    close(fd);
}

/* A user namespace in which we stay who we are. */
static void enter_own_users(void) {
    char uids[64], gids[64];
    snprintf(uids, sizeof uids, "%u %u 1", (unsigned)geteuid(), (unsigned)geteuid());
    snprintf(gids, sizeof gids, "%u %u 1", (unsigned)getegid(), (unsigned)getegid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) CHILD_SKIP("no mount namespace: %s\n", strerror(errno));
    write_own("/proc/self/setgroups", "deny");
    write_own("/proc/self/uid_map", uids);
    write_own("/proc/self/gid_map", gids);
}

/* Into a mount namespace of our own, as root or where user namespaces are allowed. */
static void enter_own_mounts(void) {
    if (unshare(CLONE_NEWNS) != 0) enter_own_users();
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) CHILD_SKIP("no own mounts: %s\n", strerror(errno));
}

static void mount_memory(const char *where, unsigned long flags, const char *options) {
    if (mount("none", where, "tmpfs", flags, options) != 0)
        CHILD_SKIP("cannot mount over %s: %s\n", where, strerror(errno));
}

enum trouble { TROUBLE_SMALL, TROUBLE_FULL, TROUBLE_READ_ONLY, TROUBLE_MISSING };

static int start_in_trouble(void *arg) {
    const enum trouble trouble = *(const enum trouble *)arg;
    enter_own_mounts();
    switch (trouble) {
    case TROUBLE_SMALL:
        mount_memory("/dev/shm", 0, "size=64k");
        break;
    case TROUBLE_READ_ONLY:
        mount_memory("/dev/shm", MS_RDONLY, "size=1m");
        break;
    case TROUBLE_MISSING:
        mount_memory("/dev", 0, "size=1m");
        break;
    case TROUBLE_FULL: {
        mount_memory("/dev/shm", 0, "size=1m");
        static const char block[4096];
        const int fd = open("/dev/shm/filler", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        while (write(fd, block, sizeof block) > 0) continue;
        close(fd);
        break;
    }
    }
    start_quietly();
    char path[PATH_MAX];
    shm_path_of(path, getpid());
    CHECK(!shm_exists(path), "a half-made file stayed\n");
    return 0;
}

static int start_in_trouble_and_log(void *arg) {
    setenv("POOL_LOG", "1", 1);
    return start_in_trouble(arg);
}

/* Silent, and the log, if asked, gives the reason. */
static void check_trouble(enum trouble trouble, const char *reason) {
    char expected[256];
    assert_string_equal(child_run(start_in_trouble, &trouble), "");
    const char *text = child_run(start_in_trouble_and_log, &trouble), *message = strstr(text, "warning: ");
    snprintf(expected, sizeof expected, "warning: no figures are published: cannot %s\n", reason);
    assert_non_null(message);
    assert_string_equal(message, expected);
}

static void a_small_shared_memory_costs_the_figures_alone(void **state) {
    (void)state;
    check_trouble(TROUBLE_SMALL, "size the segment: No space left on device");
}

static void a_full_shared_memory_costs_the_figures_alone(void **state) {
    (void)state;
    check_trouble(TROUBLE_FULL, "size the segment: No space left on device");
}

static void a_read_only_shared_memory_costs_the_figures_alone(void **state) {
    (void)state;
    check_trouble(TROUBLE_READ_ONLY, "create the segment: Read-only file system");
}

static void a_missing_shared_memory_costs_the_figures_alone(void **state) {
    (void)state;
    check_trouble(TROUBLE_MISSING, "create the segment: No such file or directory");
}

/* ---- an allocation of pages that signals interrupt ---- */

static unsigned interruptions;

int posix_fallocate(int fd, off_t offset, off_t bytes) {
    if (interruptions == 0) return fallocate(fd, 0, offset, bytes) == 0 ? 0 : errno;
    interruptions--;
    return EINTR;
}

static int start_interrupted(void *arg) {
    interruptions = *(const unsigned *)arg;
    stats_start(true);
    printf("%s", stats_header()->state == POOLCUDA_RUNNING ? "running" : "private");
    fflush(stdout);
    stats_finish();
    return 0;
}

static void an_interrupted_allocation_of_pages_is_repeated_but_not_for_ever(void **state) {
    (void)state;
    unsigned some = 3, many = 1000000000;
    shm_need();
    assert_string_equal(child_run(start_interrupted, &some), "running");
    assert_string_equal(child_run(start_interrupted, &many), "private");
}

/* ---- without /proc nothing is known of processes, not even of the own one ---- */

static void leave_file(const char *path, const void *bytes, size_t length) {
    shm_write(path, bytes, length);
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    utimensat(AT_FDCWD, path, times, 0);
}

static int start_without_proc(void *arg) {
    struct segment_storage storage;
    char own[PATH_MAX], other[PATH_MAX];
    (void)arg;
    enter_own_mounts();
    mount_memory("/dev/shm", 0, "size=8m");
    mount_memory("/proc", 0, "size=1m");
    shm_name_of(own, getpid(), 0);
    shm_name_of(other, INT_MAX, 7);
    leave_file(own, "", 0);
    memset(&storage, 0, sizeof storage);
    segment_describe(&storage);
    CHECK_EQUAL(storage.header.start_ticks, 0);
    CHECK_EQUAL(storage.header.pid_namespace, 0);
    storage.header.pid = INT_MAX;
    storage.header.start_ticks = 7;
    leave_file(other, &storage, sizeof storage);
    stats_start(true);
    CHECK_EQUAL(stats_header()->state, POOLCUDA_STARTING); /* the name may be another's */
    CHECK(shm_exists(own), "a file of a name that may be another's was removed\n");
    CHECK(shm_exists(other), "a segment of an unknown namespace was removed\n");
    stats_finish();
    return 0;
}

static void without_proc_nothing_of_others_is_touched(void **state) {
    (void)state;
    child_run(start_without_proc, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_file_size_limit_does_not_end_the_program),
    cmocka_unit_test(a_program_out_of_descriptors_runs_without_figures),
    cmocka_unit_test(a_small_shared_memory_costs_the_figures_alone),
    cmocka_unit_test(a_full_shared_memory_costs_the_figures_alone),
    cmocka_unit_test(a_read_only_shared_memory_costs_the_figures_alone),
    cmocka_unit_test(a_missing_shared_memory_costs_the_figures_alone),
    cmocka_unit_test(an_interrupted_allocation_of_pages_is_repeated_but_not_for_ever),
    cmocka_unit_test(without_proc_nothing_of_others_is_touched),
};

TESTING_MAIN(tests)
