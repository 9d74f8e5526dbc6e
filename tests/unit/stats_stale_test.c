/* SPDX-License-Identifier: MIT
 *
 * What dead processes left in shared memory is removed, what is not surely theirs is not, and a name that is taken does
 * no harm.
 */
#include "support/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "child.h"
#include "publisher.h"
#include "stats/identity.h"
#include "stats/writer.h"

/* ---- what dead processes left ---- */

static void a_killed_process_leaves_its_segment_and_the_next_removes_it(void **state) {
    (void)state;
    struct publisher killed = {.finish = true}, next = {.finish = true};
    shm_need();
    publisher_start(&killed);
    publisher_kill(&killed);
    assert_true(shm_exists(killed.path));
    publisher_start(&next);
    assert_false(shm_exists(killed.path));
    publisher_end(&next);
}

static void segments_of_living_processes_are_left_alone(void **state) {
    (void)state;
    struct publisher living = {.finish = false}, next = {.finish = true};
    shm_need();
    publisher_start(&living);
    publisher_proceed(&living);
    publisher_await(&living);
    publisher_start(&next);
    assert_true(shm_exists(living.path));
    publisher_end(&next);
    publisher_kill(&living);
    unlink(living.path);
}

/* Start a process beside a file named as that of a process which is dead by its start time; was the file removed? The
 * process id is our own, so nothing else can have the name. */
static bool is_removed(const char *path) {
    struct publisher next = {.finish = true};
    publisher_start(&next);
    const bool removed = !shm_exists(path);
    publisher_end(&next);
    return removed;
}

static struct segment_storage dead_storage(void) {
    struct segment_storage storage;
    memset(&storage, 0, sizeof storage);
    segment_describe(&storage);
    storage.header.start_ticks = 7; /* long before us */
    return storage;
}

static bool storage_is_removed(const struct segment_storage *storage, size_t length) {
    char path[PATH_MAX];
    shm_name_of(path, getpid(), 7);
    shm_write(path, storage, length);
    const bool removed = is_removed(path);
    unlink(path);
    return removed;
}

static void a_segment_whose_process_id_has_a_new_owner_is_removed(void **state) {
    (void)state;
    shm_need();
    const struct segment_storage storage = dead_storage();
    assert_true(storage_is_removed(&storage, sizeof storage));
}

static void what_is_not_surely_a_dead_process_of_ours_is_left_alone(void **state) {
    (void)state;
    shm_need();
    struct segment_storage storage = dead_storage();
    storage.header.pid_namespace++;
    assert_false(storage_is_removed(&storage, sizeof storage));
    storage = dead_storage();
    storage.header.pid_namespace = 0;
    assert_false(storage_is_removed(&storage, sizeof storage));
    storage = dead_storage();
    storage.header.version++;
    assert_false(storage_is_removed(&storage, sizeof storage));
    storage = dead_storage();
    storage.header.magic[7] = 'B';
    assert_false(storage_is_removed(&storage, sizeof storage));
    storage = dead_storage();
    storage.header.start_ticks = 8; /* not as in the name */
    assert_false(storage_is_removed(&storage, sizeof storage));
    storage = dead_storage();
    storage.header.pid = 0;
    assert_false(storage_is_removed(&storage, sizeof storage));
    storage = dead_storage();
    assert_false(storage_is_removed(&storage, 100)); /* cut short */
    assert_false(storage_is_removed(&storage, 0));
}

/* As a process leaves it that was killed in the middle of the creation. */
static bool unfinished_is_removed(const char *path, const void *bytes, size_t length, time_t age) {
    shm_write(path, bytes, length);
    const struct timespec times[2] = {{.tv_sec = time(NULL) - age}, {.tv_sec = time(NULL) - age}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    const bool removed = is_removed(path);
    unlink(path);
    return removed;
}

static void a_file_that_never_became_a_segment_is_removed_after_a_while(void **state) {
    (void)state;
    static const char zeros[4096], text[4096] = "something else";
    char path[PATH_MAX], other[PATH_MAX + 8];
    shm_need();
    shm_name_of(path, getpid(), 7);
    snprintf(other, sizeof other, "%s-notes", path);
    assert_true(unfinished_is_removed(path, "", 0, 120));
    assert_true(unfinished_is_removed(path, zeros, sizeof zeros, 120));
    assert_false(unfinished_is_removed(path, zeros, sizeof zeros, 0));
    assert_false(unfinished_is_removed(path, text, sizeof text, 120));
    assert_false(unfinished_is_removed(other, "", 0, 120));
}

static void what_is_no_plain_file_is_left_alone(void **state) {
    (void)state;
    char path[PATH_MAX], target[PATH_MAX], directory[PATH_MAX - 16];
    shm_need();
    const struct segment_storage storage = dead_storage();
    make_directory(directory, sizeof directory);
    snprintf(target, sizeof target, "%s/target", directory);
    shm_write(target, &storage, sizeof storage);
    shm_name_of(path, getpid(), 7);
    assert_int_equal(symlink(target, path), 0);
    assert_false(is_removed(path));
    assert_true(shm_exists(target));
    unlink(path);
    unlink(target);
    rmdir(directory);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_false(is_removed(path));
    rmdir(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_false(is_removed(path));
    unlink(path);
}

static void a_file_of_another_user_is_left_alone(void **state) {
    (void)state;
    char path[PATH_MAX];
    shm_need();
    if (geteuid() != 0) {
        print_message("needs root, to give a file to another user\n");
        skip();
    }
    const struct segment_storage storage = dead_storage();
    shm_name_of(path, getpid(), 7);
    shm_write(path, &storage, sizeof storage);
    assert_int_equal(chown(path, 65534, 65534), 0);
    assert_false(is_removed(path));
    unlink(path);
}

static int exec_guest_twice(void *arg) {
    const char *guest = arg;
    execl(guest, guest, "exec", guest, "publish", NULL);
    return 2;
}

/* A copy of the guest under a name with blanks and brackets, which /proc/PID/stat shows as they are. */
static void start_guest(struct child *child, int input[2], char path[PATH_MAX], int (*body)(void *arg)) {
    char directory[PATH_MAX - 32];
    make_directory(directory, sizeof directory);
    snprintf(path, PATH_MAX, "%s/a) b (3 4) S", directory);
    assert_true(copy_guest(path));
    assert_int_equal(pipe(input), 0);
    const int own_input = dup(STDIN_FILENO);
    dup2(input[0], STDIN_FILENO);
    fcntl(input[1], F_SETFD, FD_CLOEXEC);
    child_start(child, body, path);
    dup2(own_input, STDIN_FILENO);
    close(own_input);
    close(input[0]);
    char line[6];
    size_t length = 0;
    while (length < sizeof line) {
        const ssize_t bytes = read(child->output, line + length, sizeof line - length);
        if (bytes <= 0) fail_msg("the guest ended early");
        length += (size_t)bytes;
    }
    assert_memory_equal(line, "ready\n", 6);
}

static void end_guest(struct child *child, int input[2], char path[PATH_MAX]) {
    close(input[1]);
    child_wait(child);
    unlink(path);
    *strrchr(path, '/') = '\0';
    rmdir(path);
    child_judge(child);
}

static void a_program_that_replaced_its_process_replaces_the_segment(void **state) {
    (void)state;
    static struct segment_storage storage;
    struct child child;
    int input[2];
    char guest[PATH_MAX], path[PATH_MAX];
    shm_need();
    start_guest(&child, input, guest, exec_guest_twice);
    shm_path_of(path, child.pid);
    assert_true(shm_read(path, &storage));
    assert_int_equal(storage.header.state, POOLCUDA_RUNNING);
    end_guest(&child, input, guest);
    assert_false(shm_exists(path)); /* the second program's: the first never unlinked its own */
}

static int exec_guest(void *arg) {
    execl(arg, arg, "publish", NULL);
    return 2;
}

static void a_command_with_blanks_and_brackets_does_not_confuse_the_start_time(void **state) {
    (void)state;
    static struct segment_storage storage;
    struct child child;
    int input[2];
    char guest[PATH_MAX], path[PATH_MAX];
    shm_need();
    start_guest(&child, input, guest, exec_guest);
    shm_path_of(path, child.pid);
    assert_true(shm_read(path, &storage));
    assert_int_equal(storage.header.start_ticks, shm_start_ticks(child.pid));
    assert_string_equal(storage.header.command, "a) b (3 4) S");
    end_guest(&child, input, guest);
}

/* ---- a name that is taken ---- */

enum taken { TAKEN_UNFINISHED, TAKEN_OTHER_NAMESPACE, TAKEN_DIRECTORY, TAKEN_LINK, TAKEN_STRANGER };

static int start_on_taken_name(void *arg) {
    const enum taken taken = *(const enum taken *)arg;
    char path[PATH_MAX];
    struct stat before, after;
    static struct segment_storage storage;
    shm_path_of(path, getpid());
    segment_describe(&storage);
    storage.header.pid_namespace += taken == TAKEN_OTHER_NAMESPACE;
    if (taken == TAKEN_DIRECTORY) CHECK(mkdir(path, 0700) == 0, "%s\n", strerror(errno));
    if (taken == TAKEN_LINK) CHECK(symlink("/nowhere", path) == 0, "%s\n", strerror(errno));
    if (taken == TAKEN_UNFINISHED) shm_write(path, "", 0);
    if (taken == TAKEN_OTHER_NAMESPACE || taken == TAKEN_STRANGER) shm_write(path, &storage, sizeof storage);
    if (taken == TAKEN_STRANGER) CHECK(chown(path, 65534, 65534) == 0, "%s\n", strerror(errno));
    CHECK(lstat(path, &before) == 0, "%s\n", strerror(errno));
    stats_start(true);
    const bool running = stats_header()->state == POOLCUDA_RUNNING;
    const bool same = lstat(path, &after) == 0 && before.st_ino == after.st_ino && before.st_size == after.st_size;
    stats_finish();
    const bool there = shm_exists(path);
    if (there && (unlink(path) != 0)) rmdir(path);
    CHECK_EQUAL(running, taken == TAKEN_UNFINISHED);
    CHECK_EQUAL(there, taken != TAKEN_UNFINISHED);
    CHECK_EQUAL(same, taken != TAKEN_UNFINISHED);
    return 0;
}

static void an_unfinished_file_of_our_name_is_replaced(void **state) {
    (void)state;
    shm_need();
    enum taken taken = TAKEN_UNFINISHED;
    child_run(start_on_taken_name, &taken);
}

static void a_name_that_is_anothers_leaves_the_figures_private(void **state) {
    (void)state;
    shm_need();
    for (enum taken taken = TAKEN_OTHER_NAMESPACE; taken <= TAKEN_LINK; taken++)
        assert_string_equal(child_run(start_on_taken_name, &taken), "");
}

static void a_strangers_file_under_our_name_leaves_the_figures_private(void **state) {
    (void)state;
    enum taken taken = TAKEN_STRANGER;
    shm_need();
    if (geteuid() != 0) {
        print_message("needs root, to give a file to another user\n");
        skip();
    }
    assert_string_equal(child_run(start_on_taken_name, &taken), "");
}

/* ---- pid namespaces ---- */

static int start_in_other_pid_namespace(void *arg) {
    const char *others = arg;
    int status;
    if (unshare(CLONE_NEWPID) != 0) CHILD_SKIP("no pid namespace: %s\n", strerror(errno));
    const pid_t pid = fork();
    if (pid == 0) {
        stats_start(true);
        CHECK_EQUAL(stats_header()->state, POOLCUDA_RUNNING);
        CHECK_EQUAL(stats_header()->pid, 1);
        if (!shm_exists(others)) dprintf(STDOUT_FILENO, "removed");
        stats_finish();
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the child ended with %d\n", status);
    return 0;
}

static void a_segment_of_another_pid_namespace_is_left_alone(void **state) {
    (void)state;
    struct publisher outside = {.finish = true};
    struct child inside;
    shm_need();
    /* A process outside that starts meanwhile removes it, as it should: not time and again. */
    for (unsigned attempts = 0; attempts < 5; attempts++) {
        publisher_start(&outside);
        publisher_kill(&outside);
        child_start(&inside, start_in_other_pid_namespace, outside.path);
        child_wait(&inside);
        unlink(outside.path);
        child_judge(&inside);
        if (strcmp(inside.text, "") == 0) break;
    }
    assert_string_equal(inside.text, "");
}

/* ---- many at once ---- */

static int start_and_end(void *arg) {
    (void)arg;
    for (int i = 0; i < 32; i++) {
        const pid_t pid = fork();
        if (pid != 0) continue;
        char path[PATH_MAX];
        shm_path_of(path, getpid());
        stats_start(true);
        const bool there = stats_header()->state != POOLCUDA_RUNNING || shm_exists(path);
        if (i % 3 == 0) kill(getpid(), SIGKILL);
        stats_finish();
        _exit(there ? 0 : 1);
    }
    int status, bad = 0;
    while (wait(&status) > 0) bad += !(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    CHECK_EQUAL(bad, 0);
    stats_start(true); /* removes what the killed ones left */
    stats_finish();
    return 0;
}

static void processes_that_come_go_and_die_together_keep_their_own(void **state) {
    (void)state;
    child_run(start_and_end, NULL);
}

/* ---- /proc/PID/stat ---- */

static void the_start_time_is_the_22nd_field_whatever_the_command(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t ticks;
    } lines[] = {
        {"7 (cat) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 12345 20 21\n", 12345},
        {"7 (a b) c) R -1 2 3 4 -5 6 7 8 9 10 11 12 13 14 15 16 17 18 99 20\n", 99},
        {"7 () S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 18446744073709551615 20\n", UINT64_MAX},
        {"7 (x) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 18446744073709551616 20\n", 0},
        {"7 (x) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 12", 0}, /* cut inside the number */
        {"7 (x) S 1 2 3", 0},
        {"7 (x)", 0},
        {"7 (x", 0},
        {"", 0},
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        const uint64_t ticks = identity_parse_start_ticks(lines[i].text, strlen(lines[i].text));
        if (ticks != lines[i].ticks)
            fail_msg("%s: %" PRIu64 ", expected %" PRIu64, lines[i].text, ticks, lines[i].ticks);
    }
    assert_int_equal(identity_own_start_ticks(), shm_start_ticks(getpid()));
}

static int ask_about_another_users_process(void *arg) {
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) CHILD_SKIP("cannot become another user\n");
    if (kill(1, 0) == 0 || errno != EPERM) CHILD_SKIP("no process of another user is to be seen\n");
    CHECK(!identity_gone(1, *(const uint64_t *)arg), "a process that we may not signal is taken for dead\n");
    return 0;
}

static void a_process_of_another_user_is_not_gone(void **state) {
    (void)state;
    uint64_t start = shm_start_ticks(1);
    child_run(ask_about_another_users_process, &start);
}

static void a_process_is_gone_only_when_that_is_sure(void **state) {
    (void)state;
    const uint64_t own = shm_start_ticks(getpid());
    const pid_t pid = fork();
    if (pid == 0) _exit(0);
    siginfo_t information;
    assert_int_equal(waitid(P_PID, (id_t)pid, &information, WEXITED | WNOWAIT), 0);
    const uint64_t start = shm_start_ticks(pid);
    assert_false(identity_gone((uint32_t)pid, start)); /* dead, but its number is still taken */
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(identity_gone((uint32_t)pid, start));
    assert_false(identity_gone((uint32_t)getpid(), own));
    assert_true(identity_gone((uint32_t)getpid(), own + 1));
    assert_false(identity_gone((uint32_t)getpid(), 0));
    assert_false(identity_gone(0, 5));
    assert_false(identity_gone(UINT32_MAX, 5));              /* as a signed number: every process */
    assert_false(identity_gone((uint32_t)INT32_MIN + 5, 5)); /* a group that does not exist */
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_killed_process_leaves_its_segment_and_the_next_removes_it),
    cmocka_unit_test(segments_of_living_processes_are_left_alone),
    cmocka_unit_test(a_segment_whose_process_id_has_a_new_owner_is_removed),
    cmocka_unit_test(what_is_not_surely_a_dead_process_of_ours_is_left_alone),
    cmocka_unit_test(a_file_that_never_became_a_segment_is_removed_after_a_while),
    cmocka_unit_test(what_is_no_plain_file_is_left_alone),
    cmocka_unit_test(a_file_of_another_user_is_left_alone),
    cmocka_unit_test(a_program_that_replaced_its_process_replaces_the_segment),
    cmocka_unit_test(a_command_with_blanks_and_brackets_does_not_confuse_the_start_time),
    cmocka_unit_test(an_unfinished_file_of_our_name_is_replaced),
    cmocka_unit_test(a_name_that_is_anothers_leaves_the_figures_private),
    cmocka_unit_test(a_strangers_file_under_our_name_leaves_the_figures_private),
    cmocka_unit_test(a_segment_of_another_pid_namespace_is_left_alone),
    cmocka_unit_test(processes_that_come_go_and_die_together_keep_their_own),
    cmocka_unit_test(the_start_time_is_the_22nd_field_whatever_the_command),
    cmocka_unit_test(a_process_of_another_user_is_not_gone),
    cmocka_unit_test(a_process_is_gone_only_when_that_is_sure),
};

TESTING_MAIN(tests)
