/* SPDX-License-Identifier: MIT
 *
 * Runs this very program once more; see own_copy.h.
 */
#include "own_copy.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Is `entry` of the environment the variable that `setting`, NAME=VALUE, sets? */
static bool is_set_by(const char *entry, const char *setting) {
    size_t name = strcspn(setting, "=") + 1;
    return strncmp(entry, setting, name) == 0;
}

/* Owned by the caller; its strings are not. NULL: out of memory. */
static char **make_environment(const struct own_copy *copy) {
    size_t count = 0, kept = 0;
    while (environ[count] != NULL) count++;
    char **made = calloc(count + 2, sizeof *made);
    for (size_t i = 0; made != NULL && i < count; i++) {
        if (!copy->preload && is_set_by(environ[i], "LD_PRELOAD=")) continue;
        if (copy->setting != NULL && is_set_by(environ[i], copy->setting)) continue;
        made[kept++] = environ[i];
    }
    if (made != NULL && copy->setting != NULL) made[kept] = (char *)(uintptr_t)copy->setting;
    return made;
}

/* The bytes that come out of `end` until it is closed at its other end, those beyond `size` dropped. */
static size_t read_all(int end, char *answer, size_t size) {
    char rest[4096];
    size_t filled = 0;
    for (;;) {
        ssize_t count = filled < size ? read(end, answer + filled, size - filled) : read(end, rest, sizeof rest);
        if (count <= 0) return filled;
        if (filled < size) filled += (size_t)count;
    }
}

size_t own_copy_run(const struct own_copy *copy, void *answer, size_t size) {
    char self[4096];
    posix_spawn_file_actions_t actions;
    int ends[2], status = -1;
    size_t filled = 0;
    pid_t child;

    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0 || pipe2(ends, O_CLOEXEC) != 0) return 0;
    self[length] = '\0';
    char **environment = make_environment(copy);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    bool started = environment != NULL && posix_spawn(&child, self, &actions, NULL, copy->arguments, environment) == 0;
    close(ends[1]);
    if (started) {
        filled = read_all(ends[0], answer, size);
        waitpid(child, &status, 0);
    }
    close(ends[0]);
    posix_spawn_file_actions_destroy(&actions);
    free(environment);
    return status == 0 ? filled : 0;
}
