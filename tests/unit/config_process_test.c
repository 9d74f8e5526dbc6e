/* SPDX-License-Identifier: MIT
 *
 * The process's own configuration: read once, from the environment as it was, and complaints that do no harm.
 */
#include "support/testing.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "child.h"
#include "config/config.h"

static int read_twice(void *arg) {
    (void)arg;
    setenv("POOL_LIMIT_MB", "5", 1);
    setenv("POOL_TRIM_MB", "-1", 1);
    errno = 4321;
    const struct config *config = config_get();
    CHECK_EQUAL(errno, 4321);
    setenv("POOL_LIMIT_MB", "6", 1);
    CHECK(config_get() == config, "another configuration\n");
    CHECK_EQUAL(config->limit, 5 << 20);
    return 0;
}

static void the_environment_is_read_once_and_a_complaint_printed_once(void **state) {
    (void)state;
    assert_string_equal(child_run(read_twice, NULL),
                        "poolcuda: POOL_TRIM_MB=-1: accepted is none, or 0 to 16777216; using none\n");
}

static int read_good(void *arg) {
    (void)arg;
    setenv("POOL_LIMIT_MB", "5", 1);
    setenv("POOL_LOG", "3", 1);
    config_get();
    return 0;
}

static void good_values_print_nothing(void **state) {
    (void)state;
    assert_string_equal(child_run(read_good, NULL), "");
}

static void *thread_reads(void *arg) {
    pthread_barrier_wait(arg);
    return (void *)(uintptr_t)config_get()->limit;
}

static int read_in_threads(void *arg) {
    (void)arg;
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    setenv("POOL_LIMIT_MB", "7", 1);
    setenv("POOL_ENABLE", "maybe", 1);
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, thread_reads, &barrier);
    for (int i = 0; i < THREADS; i++) {
        void *limit;
        pthread_join(threads[i], &limit);
        CHECK_EQUAL((uintptr_t)limit, 7 << 20);
    }
    return 0;
}

static void many_threads_see_one_configuration_and_one_complaint(void **state) {
    (void)state;
    assert_string_equal(child_run(read_in_threads, NULL), "poolcuda: POOL_ENABLE=maybe: accepted is 0 or 1; using 1\n");
}

static int complain_into(int descriptor) {
    if (descriptor >= 0) dup2(descriptor, STDERR_FILENO);
    setenv("POOL_ENABLE", "maybe", 1);
    config_get();
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGPIPE) ? 3 : 0;
}

static int complain_into_broken_pipe(void *arg) {
    (void)arg;
    int ends[2];
    if (pipe(ends) != 0) return 2;
    close(ends[0]);
    signal(SIGPIPE, SIG_DFL);
    return complain_into(ends[1]);
}

static void a_complaint_into_a_broken_pipe_does_not_end_the_program(void **state) {
    (void)state;
    child_run(complain_into_broken_pipe, NULL);
}

static int keep_pending_signal(void *arg) {
    (void)arg;
    sigset_t block, pending;
    sigemptyset(&block);
    sigaddset(&block, SIGPIPE);
    sigprocmask(SIG_BLOCK, &block, NULL);
    raise(SIGPIPE);
    int ends[2];
    if (pipe(ends) != 0) return 2;
    close(ends[0]);
    dup2(ends[1], STDERR_FILENO);
    setenv("POOL_ENABLE", "maybe", 1);
    config_get();
    sigpending(&pending);
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    return sigismember(&pending, SIGPIPE) && sigismember(&mask, SIGPIPE) && !sigismember(&mask, SIGXFSZ) ? 0 : 4;
}

static void the_programs_own_pending_signal_and_mask_stay(void **state) {
    (void)state;
    child_run(keep_pending_signal, NULL);
}

static int complain_into_nothing(void *arg) {
    (void)arg;
    close(STDERR_FILENO);
    return complain_into(-1);
}

static void a_complaint_without_a_stderr_is_dropped(void **state) {
    (void)state;
    child_run(complain_into_nothing, NULL);
}

static int read_log_file(void *arg) {
    char expected[PATH_MAX + 64], directory[PATH_MAX];
    setenv("POOL_LOG_FILE", arg, 1);
    if (chdir("/usr/bin") != 0 || getcwd(directory, sizeof directory) == NULL) return 2;
    const struct config *config = config_get();
    setenv("POOL_LOG_FILE", "/changed", 1);
    if (chdir("/") != 0) return 2;
    snprintf(expected, sizeof expected, "%s/a-%ld-%%q-%ld", directory, (long)getpid(), (long)getpid());
    CHECK(config->log_file != NULL && strcmp(config->log_file, expected) == 0, "%s, expected %s\n", config->log_file,
          expected);
    CHECK_EQUAL(config_from_environment(config, config_variable_count() - 1), true);
    return 0;
}

static void the_log_file_is_absolute_and_named_for_the_process(void **state) {
    (void)state;
    char name[] = "a-%p-%q-%p";
    assert_string_equal(child_run(read_log_file, name), "");
}

static int read_long_log_file(void *arg) {
    (void)arg;
    char name[PATH_MAX] = "";
    memset(name, 'x', sizeof name - 1);
    setenv("POOL_LOG_FILE", name, 1);
    if (chdir("/usr") != 0) return 2;
    CHECK(config_get()->log_file == NULL, "%s\n", config_get()->log_file);
    CHECK_EQUAL(config_from_environment(config_get(), config_variable_count() - 1), false);
    return 0;
}

static void a_log_file_whose_absolute_path_is_too_long_is_not_used(void **state) {
    (void)state;
    const char *text = child_run(read_long_log_file, NULL);
    assert_non_null(strstr(text, "; using stderr\n"));
}

static int read_log_file_from_nowhere(void *arg) {
    (void)arg;
    char directory[PATH_MAX];
    make_directory(directory, sizeof directory);
    setenv("POOL_LOG_FILE", "name", 1);
    if (chdir(directory) != 0 || rmdir(directory) != 0) return 2;
    errno = 4321;
    CHECK(config_get()->log_file == NULL, "%s\n", config_get()->log_file);
    CHECK_EQUAL(errno, 4321);
    return 0;
}

static void a_directory_that_is_gone_holds_no_log_file_and_errno_stays(void **state) {
    (void)state;
    assert_non_null(strstr(child_run(read_log_file_from_nowhere, NULL), "; using stderr\n"));
}

static int read_trace(void *arg) {
    char expected[PATH_MAX + 64], directory[] = "/tmp/poolcuda-%p-XXXXXX", path[PATH_MAX];
    (void)arg;
    setenv("POOL_TRACE", "t-%p-%q", 1);
    if (mkdtemp(directory) == NULL || chdir(directory) != 0) return 2;
    const struct config *config = config_get();
    if (chdir("/") != 0 || rmdir(directory) != 0) return 2;
    const pid_t parent = getpid(), child = fork();
    if (child != 0) {
        int status;
        waitpid(child, &status, 0);
        return status == 0 ? 0 : 3;
    }
    snprintf(expected, sizeof expected, "%s/t-%ld-%%q", directory, (long)parent);
    CHECK(strcmp(config->trace, expected) == 0, "%s, expected %s\n", config->trace, expected);
    snprintf(expected, sizeof expected, "%s/t-%ld-%%q", directory, (long)getpid());
    CHECK(config_trace_file(path, sizeof path), "no file\n");
    CHECK(strcmp(path, expected) == 0, "%s, expected %s\n", path, expected);
    CHECK(!config_trace_file(path, strlen(expected)), "%s fits\n", path);
    return 0;
}

static void the_trace_is_absolute_and_named_for_the_process_that_asks(void **state) {
    (void)state;
    assert_string_equal(child_run(read_trace, NULL), "");
}

static int read_no_trace(void *arg) {
    char path[PATH_MAX];
    if (arg) setenv("POOL_TRACE", arg, 1);
    CHECK(!config_trace_file(path, sizeof path), "%s\n", path);
    return 0;
}

static void without_a_trace_there_is_no_file(void **state) {
    (void)state;
    char empty[] = "";
    assert_string_equal(child_run(read_no_trace, NULL), "");
    assert_string_equal(child_run(read_no_trace, empty),
                        "poolcuda: POOL_TRACE='': accepted is a path; %p is replaced by the process id; using none\n");
}

/* A copy of the guest program that runs as another user than its caller. */
static int run_with_raised_privileges(void *arg) {
    const char *directory = arg;
    char path[PATH_MAX];
    enum { NOBODY = 65534 };
    struct statvfs filesystem;
    if (geteuid() != 0) CHILD_SKIP("needs root, to make a program that changes its user");
    if (statvfs(directory, &filesystem) != 0 || (filesystem.f_flag & ST_NOSUID) != 0)
        CHILD_SKIP("%s does not let programs change their user", directory);
    snprintf(path, sizeof path, "%s/guest", directory);
    CHECK(copy_guest(path), "no guest\n");
    CHECK(chown(path, NOBODY, NOBODY) == 0 && chmod(path, 04755) == 0, "%s\n", strerror(errno));
    setenv("POOL_LOG_FILE", "/never/written", 1);
    setenv("POOL_TRACE", "/never/written", 1);
    execl(path, "guest", "files", NULL);
    return 2;
}

static void a_program_with_raised_privileges_ignores_the_files(void **state) {
    (void)state;
    char directory[PATH_MAX - 16], path[PATH_MAX];
    struct child child;
    make_directory(directory, sizeof directory);
    child_start(&child, run_with_raised_privileges, directory);
    child_wait(&child);
    snprintf(path, sizeof path, "%s/guest", directory);
    unlink(path);
    rmdir(directory);
    child_judge(&child);
    assert_string_equal(child.text, "none none\n");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_environment_is_read_once_and_a_complaint_printed_once),
    cmocka_unit_test(good_values_print_nothing),
    cmocka_unit_test(many_threads_see_one_configuration_and_one_complaint),
    cmocka_unit_test(a_complaint_into_a_broken_pipe_does_not_end_the_program),
    cmocka_unit_test(the_programs_own_pending_signal_and_mask_stay),
    cmocka_unit_test(a_complaint_without_a_stderr_is_dropped),
    cmocka_unit_test(the_log_file_is_absolute_and_named_for_the_process),
    cmocka_unit_test(a_log_file_whose_absolute_path_is_too_long_is_not_used),
    cmocka_unit_test(the_trace_is_absolute_and_named_for_the_process_that_asks),
    cmocka_unit_test(without_a_trace_there_is_no_file),
    cmocka_unit_test(a_directory_that_is_gone_holds_no_log_file_and_errno_stays),
    cmocka_unit_test(a_program_with_raised_privileges_ignores_the_files),
};

TESTING_MAIN(tests)
