/* SPDX-License-Identifier: MIT
 *
 * Reads the identity of processes from /proc.
 */
#include "stats/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { START_FIELD = 22, FIELD_AFTER_COMMAND = 3 };

uint64_t identity_parse_start_ticks(const char *stat, size_t length) {
    const char *end = stat + length, *at = memrchr(stat, ')', length);
    if (at == NULL) return 0;
    at++;
    for (int field = FIELD_AFTER_COMMAND; field <= START_FIELD; field++) {
        if (at == end || *at != ' ') return 0;
        at++;
        if (field == START_FIELD) break;
        while (at != end && *at != ' ') at++;
    }
    uint64_t ticks = 0;
    for (; at != end && *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(ticks, 10u, &ticks) || __builtin_add_overflow(ticks, (uint64_t)(*at - '0'), &ticks))
            return 0;
    }
    return at != end && *at == ' ' ? ticks : 0;
}

/* 0 when it cannot be read; errno says why. */
static uint64_t read_start_ticks(int folder, const char *path) {
    char text[1024];
    const int fd = openat(folder, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    const ssize_t length = read(fd, text, sizeof text);
    close(fd);
    return length > 0 ? identity_parse_start_ticks(text, (size_t)length) : 0;
}

/* Through the folder: under a user-mode emulator the path of the file itself leads to one of the emulator's making,
 * with another time than other processes see. */
uint64_t identity_own_start_ticks(void) {
    const int folder = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return 0;
    const uint64_t ticks = read_start_ticks(folder, "stat");
    close(folder);
    return ticks;
}

uint64_t identity_pid_namespace(void) {
    struct stat namespace;
    return stat("/proc/self/ns/pid", &namespace) == 0 ? (uint64_t) namespace.st_ino : 0;
}

void identity_command(char *name, size_t size) {
    static const char deleted[] = " (deleted)";
    static char path[4096]; /* the caller's stack may be small */
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0) {
        snprintf(name, size, "%s", program_invocation_short_name);
        return;
    }
    path[length] = '\0';
    const size_t mark = sizeof deleted - 1;
    if ((size_t)length > mark && strcmp(path + length - mark, deleted) == 0) path[(size_t)length - mark] = '\0';
    const char *slash = strrchr(path, '/');
    snprintf(name, size, "%s", slash == NULL ? path : slash + 1);
}

bool identity_gone(uint32_t pid, uint64_t start_ticks) {
    char path[32];
    if (pid == 0 || pid > INT32_MAX) return false;
    if (kill((pid_t)pid, 0) < 0 && errno == ESRCH) return true;
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    const uint64_t now = read_start_ticks(AT_FDCWD, path);
    return now != 0 && start_ticks != 0 && now != start_ticks;
}
