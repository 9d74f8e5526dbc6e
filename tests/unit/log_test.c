/* SPDX-License-Identifier: MIT
 *
 * The log: levels, targets, and that a program notices nothing of it.
 */
#include "support/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "child.h"
#include "config/guard.h"
#include "config/log.h"

static char directory[PATH_MAX - 256];
static char text_of_file[1 << 20];

static int make_test_directory(void **state) {
    (void)state;
    make_directory(directory, sizeof directory);
    return 0;
}

static int remove_test_directory(void **state) {
    (void)state;
    char command[PATH_MAX];
    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    return system(command);
}

static const char *path_of(const char *name) {
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static const char *read_file(const char *name) {
    FILE *file = fopen(path_of(name), "r");
    assert_non_null(file);
    const size_t length = fread(text_of_file, 1, sizeof text_of_file - 1, file);
    text_of_file[length] = '\0';
    fclose(file);
    return text_of_file;
}

/* The message of a line: what follows the process, the time and the level. NULL when the line has another form. */
static const char *message_of(const char *line, const char *level) {
    int length = 0;
    char form[64];
    long pid;
    long long seconds;
    unsigned long fraction;
    snprintf(form, sizeof form, "poolcuda[%%ld] %%lld.%%6lu %s: %%n", level);
    if (sscanf(line, form, &pid, &seconds, &fraction, &length) != 3 || length == 0) return NULL;
    return line + length;
}

static void expect_message(const char *line, const char *level, const char *message) {
    const char *found = message_of(line, level);
    if (found == NULL || strcmp(found, message) != 0)
        fail_msg("the line is \"%s\", expected %s with \"%s\"", line, level, message);
}

/* ---- levels ---- */

static int log_each_level(void *arg) {
    setenv("POOL_LOG", arg, 1);
    const int level = atoi(arg);
    CHECK_EQUAL(log_wants(LOG_WARNING), level >= 1);
    CHECK_EQUAL(log_wants(LOG_EVENT), level >= 2);
    CHECK_EQUAL(log_wants(LOG_ALL), level >= 3);
    log_line(LOG_WARNING, "first");
    log_line(LOG_EVENT, "second");
    log_line(LOG_ALL, "third");
    return 0;
}

static int lines_in(const char *text) {
    int lines = 0;
    for (; *text != '\0'; text++) lines += *text == '\n';
    return lines;
}

static void a_level_shows_itself_and_all_below(void **state) {
    (void)state;
    char levels[4][2] = {"0", "1", "2", "3"};
    for (int level = 0; level <= 3; level++) {
        const char *text = child_run(log_each_level, levels[level]);
        assert_int_equal(lines_in(text), level);
        assert_int_equal(strstr(text, " warning: first\n") != NULL, level >= 1);
        assert_int_equal(strstr(text, " event: second\n") != NULL, level >= 2);
        assert_int_equal(strstr(text, " detail: third\n") != NULL, level >= 3);
    }
}

static int log_without_variables(void *arg) {
    (void)arg;
    log_each_level("0");
    return 0;
}

static void nothing_is_written_unless_asked(void **state) {
    (void)state;
    assert_string_equal(child_run(log_without_variables, NULL), "");
}

static int log_arguments(void *arg) {
    (void)arg;
    setenv("POOL_LOG", "1", 1);
    log_line(LOG_WARNING, "%s took %d of %llu", "x", -3, 1ull << 40);
    return 0;
}

static void a_line_names_process_time_and_level(void **state) {
    (void)state;
    struct child child;
    child_start(&child, log_arguments, NULL);
    child_wait(&child);
    child_judge(&child);
    expect_message(child.text, "warning", "x took -3 of 1099511627776\n");
    assert_int_equal(atol(child.text + strlen("poolcuda[")), child.pid);
}

static int log_odd_text(void *arg) {
    (void)arg;
    char text[4000];
    setenv("POOL_LOG", "1", 1);
    log_line(LOG_WARNING, "a\nb\x1b[1mc\x7f");
    memset(text, 'y', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    log_line(LOG_WARNING, "%s", text);
    return 0;
}

static void odd_and_long_text_stays_one_line(void **state) {
    (void)state;
    const char *text = child_run(log_odd_text, NULL), *second = strchr(text, '\n') + 1;
    assert_int_equal(lines_in(text), 2);
    assert_non_null(strstr(text, "warning: a?b?[1mc?\n"));
    assert_in_range(strlen(second), 1000, 1024);
    assert_string_equal(second + strlen(second) - 5, "y...\n");
}

/* ---- the file ---- */

static int log_to(void *arg) {
    setenv("POOL_LOG", "1", 1);
    setenv("POOL_LOG_FILE", arg, 1);
    const int before = open_descriptors();
    errno = 4321;
    log_line(LOG_WARNING, "one");
    CHECK_EQUAL(errno, 4321);
    log_line(LOG_WARNING, "two");
    CHECK_EQUAL(open_descriptors(), before);
    return 0;
}

static char *copy_path(const char *name) {
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", path_of(name));
    return path;
}

static void the_file_is_named_for_the_process_and_owner_only(void **state) {
    (void)state;
    struct child child;
    struct stat file;
    char name[64];
    child_start(&child, log_to, copy_path("log.%p"));
    child_wait(&child);
    child_judge(&child);
    assert_string_equal(child.text, "");
    snprintf(name, sizeof name, "log.%ld", (long)child.pid);
    assert_int_equal(stat(path_of(name), &file), 0);
    assert_int_equal(file.st_mode & 0777, 0600);
    char *text = (char *)(uintptr_t)read_file(name), *end = strchr(text, '\n');
    *end = '\0';
    expect_message(text, "warning", "one");
    expect_message(end + 1, "warning", "two\n");
}

static void a_file_that_exists_is_appended_to(void **state) {
    (void)state;
    FILE *file = fopen(path_of("kept"), "w");
    fputs("kept line\n", file);
    fclose(file);
    child_run(log_to, copy_path("kept"));
    const char *text = read_file("kept");
    assert_int_equal(strncmp(text, "kept line\n", 10), 0);
    assert_int_equal(lines_in(text), 3);
}

static void expect_stderr_instead(const char *name, const char *reason) {
    char first[PATH_MAX + 128];
    snprintf(first, sizeof first, "poolcuda: POOL_LOG_FILE: %s cannot be opened (%s); logging to stderr\n",
             path_of(name), reason);
    const char *text = child_run(log_to, copy_path(name));
    if (strncmp(text, first, strlen(first)) != 0) fail_msg("printed: %s, expected first: %s", text, first);
    assert_int_equal(lines_in(text), 3);
    assert_non_null(strstr(text, "warning: one\n"));
    assert_non_null(strstr(text, "warning: two\n"));
}

static void a_file_that_cannot_be_opened_costs_one_line_and_stderr_is_used(void **state) {
    (void)state;
    expect_stderr_instead("no/such/folder", "No such file or directory");
}

static void a_directory_is_no_log_file(void **state) {
    (void)state;
    assert_int_equal(mkdir(path_of("folder"), 0700), 0);
    expect_stderr_instead("folder", "Is a directory");
}

static void a_symbolic_link_is_not_followed(void **state) {
    (void)state;
    char target[PATH_MAX];
    snprintf(target, sizeof target, "%s", path_of("target"));
    assert_int_equal(symlink(target, path_of("link")), 0);
    expect_stderr_instead("link", "Too many levels of symbolic links");
    assert_int_equal(access(target, F_OK), -1);
}

static void a_pipe_that_nobody_reads_does_not_stop_the_program(void **state) {
    (void)state;
    assert_int_equal(mkfifo(path_of("fifo"), 0600), 0);
    expect_stderr_instead("fifo", "No such device or address");
}

/* ---- a look at it before the first line ---- */

static const char *level; /* of POOL_LOG; NULL: not set */

static int begin_log(void *arg) {
    unsetenv("POOL_LOG");
    if (level) setenv("POOL_LOG", level, 1);
    setenv("POOL_LOG_FILE", arg, 1);
    errno = 4321;
    log_begin();
    log_begin();
    CHECK_EQUAL(errno, 4321);
    log_line(LOG_ALWAYS, "must be said");
    return 0;
}

static void expect_complaint(const char *name, const char *reason) {
    char first[PATH_MAX + 128];
    snprintf(first, sizeof first, "poolcuda: POOL_LOG_FILE: %s cannot be opened (%s); logging to stderr\n",
             path_of(name), reason);
    const char *text = child_run(begin_log, copy_path(name));
    if (strncmp(text, first, strlen(first)) != 0) fail_msg("printed: %s, expected first: %s", text, first);
    assert_int_equal(lines_in(text), 2);
}

static void a_file_that_could_not_be_opened_is_told_at_once_unless_silence_is_asked_for(void **state) {
    (void)state;
    assert_int_equal(mkdir(path_of("a folder"), 0700), 0);
    assert_int_equal(symlink("/nowhere", path_of("a link")), 0);
    static const char *const levels[] = {NULL, "1"};
    for (size_t i = 0; i < 2; i++) {
        level = levels[i];
        expect_complaint("no/such/folder", "No such file or directory");
        expect_complaint("a folder", "Is a directory");
        expect_complaint("a link", "Too many levels of symbolic links");
    }
    level = "0";
    const char *text = child_run(begin_log, copy_path("no/such/folder"));
    assert_int_equal(lines_in(text), 1);
    assert_non_null(strstr(text, "warning: must be said\n"));
}

static int begin_log_alone(void *arg) {
    unsetenv("POOL_LOG");
    setenv("POOL_LOG_FILE", arg, 1);
    log_begin();
    return 0;
}

static void a_file_that_could_be_made_is_not_made_before_the_first_line(void **state) {
    (void)state;
    assert_string_equal(child_run(begin_log_alone, copy_path("later")), "");
    assert_int_equal(access(path_of("later"), F_OK), -1);
    level = NULL;
    assert_string_equal(child_run(begin_log, copy_path("later")), "");
    assert_int_equal(lines_in(read_file("later")), 1);
    assert_string_equal(child_run(begin_log, copy_path("later")), ""); /* it is there */
    assert_int_equal(lines_in(read_file("later")), 2);
}

static int log_beyond_file_limit(void *arg) {
    const struct rlimit limit = {100, 100};
    signal(SIGXFSZ, SIG_DFL);
    setrlimit(RLIMIT_FSIZE, &limit);
    setenv("POOL_LOG", "1", 1);
    setenv("POOL_LOG_FILE", arg, 1);
    for (int i = 0; i < 10; i++) log_line(LOG_WARNING, "a line of some length, number %d", i);
    return 0;
}

static void a_file_size_limit_does_not_end_the_program(void **state) {
    (void)state;
    child_run(log_beyond_file_limit, copy_path("limited"));
    assert_int_equal(strlen(read_file("limited")), 100);
}

static int log_into_broken_pipe(void *arg) {
    (void)arg;
    int ends[2];
    sigset_t pending;
    if (pipe(ends) != 0) return 2;
    close(ends[0]);
    signal(SIGPIPE, SIG_DFL);
    dup2(ends[1], STDERR_FILENO);
    setenv("POOL_LOG", "1", 1);
    errno = 4321;
    log_line(LOG_WARNING, "lost");
    if (errno != 4321) return 3;
    sigpending(&pending);
    return sigismember(&pending, SIGPIPE) ? 4 : 0;
}

static void a_broken_pipe_does_not_end_the_program(void **state) {
    (void)state;
    child_run(log_into_broken_pipe, NULL);
}

static int log_with_standard_descriptors_closed(void *arg) {
    setenv("POOL_LOG", "1", 1);
    setenv("POOL_LOG_FILE", arg, 1);
    for (int fd = 0; fd < 3; fd++) close(fd);
    const int before = open_descriptors();
    for (int i = 0; i < 4; i++) log_line(LOG_WARNING, "line %d", i);
    return fcntl(STDERR_FILENO, F_GETFD) == -1 && open_descriptors() == before ? 0 : 3;
}

static void a_program_without_standard_descriptors_gets_none_from_us(void **state) {
    (void)state;
    child_run(log_with_standard_descriptors_closed, copy_path("closed"));
    assert_int_equal(lines_in(read_file("closed")), 4);
}

/* ---- a write that a signal cuts short ---- */

enum { LONG_BYTES = 200000 }; /* more than a pipe holds */

static void interrupted(int number) {
    (void)number;
}

static void *read_late(void *arg) {
    const int fd = *(const int *)arg;
    uintptr_t right = 0;
    char piece[4096];
    usleep(50000);
    for (ssize_t bytes; (bytes = read(fd, piece, sizeof piece)) > 0;)
        for (ssize_t i = 0; i < bytes && piece[i] == (char)('a' + right % 23); i++) right++;
    return (void *)right;
}

static int write_through_a_signal(void *arg) {
    (void)arg;
    static char text[LONG_BYTES];
    const struct sigaction action = {.sa_handler = interrupted}; /* without SA_RESTART */
    const struct itimerval soon = {.it_value = {.tv_usec = 20000}};
    sigset_t alarm_only;
    pthread_t reader;
    struct guard guard;
    void *right;
    int ends[2];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)('a' + i % 23);
    if (pipe(ends) != 0) return 2;
    sigaction(SIGALRM, &action, NULL);
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm_only, NULL);
    pthread_create(&reader, NULL, read_late, &ends[0]);
    pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL); /* this thread alone */
    setitimer(ITIMER_REAL, &soon, NULL);
    guard_enter(&guard);
    guard_write(ends[1], text, sizeof text);
    guard_leave(&guard);
    close(ends[1]);
    pthread_join(reader, &right);
    CHECK_EQUAL((uintptr_t)right, LONG_BYTES);
    return 0;
}

static void a_write_that_a_signal_cut_short_goes_on(void **state) {
    (void)state;
    child_run(write_through_a_signal, NULL);
}

/* ---- threads and processes ---- */

enum { WRITERS = 8, LINES = 200 };

static void *write_lines(void *arg) {
    const int writer = (int)(intptr_t)arg;
    char filler[128];
    memset(filler, 'a' + writer, sizeof filler - 1);
    filler[sizeof filler - 1] = '\0';
    for (int i = 0; i < LINES; i++) log_line(LOG_WARNING, "%d %d %s", writer, i, filler);
    return NULL;
}

static int log_from_threads(void *arg) {
    pthread_t threads[WRITERS];
    setenv("POOL_LOG", "1", 1);
    setenv("POOL_LOG_FILE", arg, 1);
    for (intptr_t i = 0; i < WRITERS; i++) pthread_create(&threads[i], NULL, write_lines, (void *)i);
    for (int i = 0; i < WRITERS; i++) pthread_join(threads[i], NULL);
    return 0;
}

static int log_from_processes(void *arg) {
    pid_t children[WRITERS];
    setenv("POOL_LOG", "1", 1);
    setenv("POOL_LOG_FILE", arg, 1);
    log_wants(LOG_WARNING);
    for (intptr_t i = 0; i < WRITERS; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            write_lines((void *)i);
            _exit(0);
        }
    }
    for (int i = 0; i < WRITERS; i++) CHECK(waitpid(children[i], NULL, 0) == children[i], "%s\n", strerror(errno));
    return 0;
}

/* Every line of every writer is there, whole and in its writer's order. */
static void check_lines_whole(const char *name) {
    int next[WRITERS] = {0}, lines = 0;
    char *rest = (char *)(uintptr_t)read_file(name);
    for (char *line; (line = strsep(&rest, "\n")) != NULL && *line != '\0'; lines++) {
        const char *message = message_of(line, "warning");
        int writer = -1, number = -1;
        char filler[256] = "";
        if (message == NULL || sscanf(message, "%d %d %255s", &writer, &number, filler) != 3)
            fail_msg("a torn line: %s", line);
        assert_in_range(writer, 0, WRITERS - 1);
        assert_int_equal(number, next[writer]++);
        assert_int_equal(strlen(filler), 127);
        for (int i = 0; i < 127; i++) assert_int_equal(filler[i], 'a' + writer);
    }
    assert_int_equal(lines, WRITERS * LINES);
}

static void lines_of_many_threads_stay_whole(void **state) {
    (void)state;
    child_run(log_from_threads, copy_path("threads"));
    check_lines_whole("threads");
}

static void lines_of_many_processes_stay_whole(void **state) {
    (void)state;
    child_run(log_from_processes, copy_path("processes"));
    check_lines_whole("processes");
}

static void *log_for_ever(void *arg) {
    (void)arg;
    for (;;) {
        log_line(LOG_WARNING, "again");
        pthread_testcancel();
    }
    return NULL;
}

static int cancel_a_logging_thread(void *arg) {
    setenv("POOL_LOG", "1", 1);
    setenv("POOL_LOG_FILE", arg, 1);
    const int before = open_descriptors();
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, log_for_ever, NULL);
        usleep(200);
        pthread_cancel(thread);
        pthread_join(thread, NULL);
    }
    CHECK_EQUAL(open_descriptors(), before);
    return 0;
}

static void a_thread_is_not_cancelled_inside_the_log(void **state) {
    (void)state;
    child_run(cancel_a_logging_thread, copy_path("cancelled"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_level_shows_itself_and_all_below),
    cmocka_unit_test(nothing_is_written_unless_asked),
    cmocka_unit_test(a_line_names_process_time_and_level),
    cmocka_unit_test(odd_and_long_text_stays_one_line),
    cmocka_unit_test_setup_teardown(the_file_is_named_for_the_process_and_owner_only, make_test_directory,
                                    remove_test_directory),
    cmocka_unit_test_setup_teardown(a_file_that_exists_is_appended_to, make_test_directory, remove_test_directory),
    cmocka_unit_test_setup_teardown(a_file_that_cannot_be_opened_costs_one_line_and_stderr_is_used, make_test_directory,
                                    remove_test_directory),
    cmocka_unit_test_setup_teardown(a_directory_is_no_log_file, make_test_directory, remove_test_directory),
    cmocka_unit_test_setup_teardown(a_symbolic_link_is_not_followed, make_test_directory, remove_test_directory),
    cmocka_unit_test_setup_teardown(a_pipe_that_nobody_reads_does_not_stop_the_program, make_test_directory,
                                    remove_test_directory),
    cmocka_unit_test_setup_teardown(a_file_that_could_not_be_opened_is_told_at_once_unless_silence_is_asked_for,
                                    make_test_directory, remove_test_directory),
    cmocka_unit_test_setup_teardown(a_file_that_could_be_made_is_not_made_before_the_first_line, make_test_directory,
                                    remove_test_directory),
    cmocka_unit_test_setup_teardown(a_file_size_limit_does_not_end_the_program, make_test_directory,
                                    remove_test_directory),
    cmocka_unit_test(a_broken_pipe_does_not_end_the_program),
    cmocka_unit_test(a_write_that_a_signal_cut_short_goes_on),
    cmocka_unit_test_setup_teardown(a_program_without_standard_descriptors_gets_none_from_us, make_test_directory,
                                    remove_test_directory),
    cmocka_unit_test_setup_teardown(lines_of_many_threads_stay_whole, make_test_directory, remove_test_directory),
    cmocka_unit_test_setup_teardown(lines_of_many_processes_stay_whole, make_test_directory, remove_test_directory),
    cmocka_unit_test_setup_teardown(a_thread_is_not_cancelled_inside_the_log, make_test_directory,
                                    remove_test_directory),
};

TESTING_MAIN(tests)
