/* SPDX-License-Identifier: MIT
 *
 * Runs a piece of a test in a child process: what a process does only once (read its environment, make its segment),
 * what it prints, and how it ends.
 */
#ifndef POOLCUDA_TEST_CHILD_H
#define POOLCUDA_TEST_CHILD_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

enum { CHILD_SKIPPED = 77, CHILD_FAILED = 99 };

/* In a child: say what is wrong and end. */
#define CHECK(condition, ...)                                                      \
    do {                                                                           \
        if (!(condition)) {                                                        \
            dprintf(STDERR_FILENO, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
            dprintf(STDERR_FILENO, __VA_ARGS__);                                   \
            _exit(CHILD_FAILED);                                                   \
        }                                                                          \
    } while (0)

#define CHECK_EQUAL(actual, expected)                                                                 \
    do {                                                                                              \
        const long long actual_value = (long long)(actual), expected_value = (long long)(expected);   \
        CHECK(actual_value == expected_value, "%lld, expected %lld\n", actual_value, expected_value); \
    } while (0)

/* In a child: this cannot be tested here. */
#define CHILD_SKIP(...)                      \
    do {                                     \
        dprintf(STDERR_FILENO, __VA_ARGS__); \
        _exit(CHILD_SKIPPED);                \
    } while (0)

struct child {
    pid_t pid;
    int output;      /* read end of a pipe: the child's stdout and stderr */
    int status;      /* as waitpid gives it, once it has ended */
    char text[8192]; /* what it printed, once it has ended */
};

/* Fork; in the child, without any POOL_* variable, run body(arg) and end with its result. */
void child_start(struct child *child, int (*body)(void *arg), void *arg);

/* Wait for its end and collect its output. */
void child_wait(struct child *child);

/* Start and wait; the case fails unless the child ends with 0 (77: the case is skipped). Returns its output, valid
 * until the next call. */
const char *child_run(int (*body)(void *arg), void *arg);

/* The same of a child that has been waited for. */
void child_judge(const struct child *child);

/* Copy the guest program (guest.c), built beside this one, to `path`. False, with a line that says why, when it cannot
 * be. For use in a child. */
bool copy_guest(const char *path);

/* A new temporary directory, for all users to look into; its path. The case fails when there is none. */
void make_directory(char *path, size_t size);

/* Number of descriptors open in this process. */
int open_descriptors(void);

#endif
