/* SPDX-License-Identifier: MIT
 *
 * Children with a pipe for their output.
 */
#include "child.h"

#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "support/testing.h"

static void forget_pool_variables(void) {
    for (char **entry = environ; *entry != NULL;) {
        char name[256];
        const size_t length = strcspn(*entry, "=");
        if (strncmp(*entry, "POOL_", 5) != 0 || length >= sizeof name) {
            entry++;
            continue;
        }
        snprintf(name, sizeof name, "%.*s", (int)length, *entry);
        unsetenv(name);
    }
}

void child_start(struct child *child, int (*body)(void *arg), void *arg) {
    int ends[2];
    memset(child, 0, sizeof *child);
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    child->pid = fork();
    assert_true(child->pid >= 0);
    if (child->pid == 0) {
        close(ends[0]);
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        close(ends[1]);
        forget_pool_variables();
        _exit(body(arg));
    }
    close(ends[1]);
    child->output = ends[0];
}

void child_wait(struct child *child) {
    size_t length = 0;
    for (;;) {
        char rest[512];
        const bool room = length + 1 < sizeof child->text;
        const ssize_t bytes = read(child->output, room ? child->text + length : rest,
                                   room ? sizeof child->text - 1 - length : sizeof rest);
        if (bytes < 0 && errno == EINTR) continue;
        if (bytes <= 0) break;
        if (room) length += (size_t)bytes;
    }
    child->text[length] = '\0';
    close(child->output);
    while (waitpid(child->pid, &child->status, 0) < 0 && errno == EINTR) continue;
}

void child_judge(const struct child *child) {
    if (WIFEXITED(child->status) && WEXITSTATUS(child->status) == CHILD_SKIPPED) {
        print_message("%.*s\n", (int)strcspn(child->text, "\n"), child->text);
        skip();
    }
    if (!WIFEXITED(child->status) || WEXITSTATUS(child->status) != 0)
        fail_msg("the child ended with %s %d and printed: %s", WIFSIGNALED(child->status) ? "signal" : "status",
                 WIFSIGNALED(child->status) ? WTERMSIG(child->status) : WEXITSTATUS(child->status), child->text);
}

const char *child_run(int (*body)(void *arg), void *arg) {
    static struct child child;
    child_start(&child, body, arg);
    child_wait(&child);
    child_judge(&child);
    return child.text;
}

bool copy_guest(const char *path) {
    char source[4096];
    const ssize_t length = readlink("/proc/self/exe", source, sizeof source - 16);
    char *name = NULL;
    if (length > 0) {
        source[length] = '\0';
        name = strrchr(source, '/');
    }
    if (name == NULL) return false;
    strcpy(name + 1, "unit_guest");
    const int from = open(source, O_RDONLY | O_CLOEXEC), to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    bool good = from >= 0 && to >= 0;
    char block[65536];
    for (ssize_t bytes = 1; good && bytes > 0;) {
        bytes = read(from, block, sizeof block);
        good = bytes == 0 || (bytes > 0 && write(to, block, (size_t)bytes) == bytes);
    }
    if (!good) dprintf(STDERR_FILENO, "cannot copy %s to %s: %s\n", source, path, strerror(errno));
    if (from >= 0) close(from);
    if (to >= 0) close(to);
    return good;
}

void make_directory(char *path, size_t size) {
    const char *parent = getenv("TMPDIR");
    snprintf(path, size, "%s/poolcuda-test-XXXXXX", parent != NULL && *parent == '/' ? parent : P_tmpdir);
    assert_non_null(mkdtemp(path));
    assert_int_equal(chmod(path, 0755), 0);
}

int open_descriptors(void) {
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    if (directory == NULL) return -1;
    while (readdir(directory) != NULL) count++;
    closedir(directory);
    return count - 3; /* ".", ".." and the directory itself */
}
