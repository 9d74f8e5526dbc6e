/* SPDX-License-Identifier: MIT
 *
 * `doctor COMMAND`: an executable before it is started: can a library be preloaded into it? Nothing is executed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "diagnosis.h"
#include "memory.h"

#define MOST_INTERPRETERS 5u /* as the kernel: a script's interpreter may be a script */

/* As execvp finds it. The caller frees it; NULL when there is none. */
static char *find_command(const char *command) {
    const char *folders = getenv("PATH");
    if (strchr(command, '/') != NULL) return access(command, F_OK) == 0 ? memory_copy(command) : NULL;
    if (folders == NULL) folders = "/bin:/usr/bin";
    for (const char *at = folders;; at++) {
        const size_t length = strcspn(at, ":");
        char *path = memory_format("%.*s/%s", length == 0 ? 1 : (int)length, length == 0 ? "." : at, command);
        if (access(path, X_OK) == 0) return path;
        free(path);
        at += length;
        if (*at == '\0') return NULL;
    }
}

/* "#!/usr/bin/env python3": the program that is started. The caller frees it; NULL when the file is no script. */
static char *interpreter_of(int fd) {
    char line[256];
    const ssize_t length = pread(fd, line, sizeof(line) - 1, 0);
    if (length < 3 || memcmp(line, "#!", 2) != 0) return NULL;
    line[length] = '\0';
    line[strcspn(line, "\n")] = '\0';
    char *rest = line + 2, *word;
    do word = strsep(&rest, " \t");
    while (word != NULL && *word == '\0');
    if (word == NULL) return NULL;
    if (strcmp(base_name(word), "env") != 0) return memory_copy(word);
    do word = strsep(&rest, " \t");
    while (word != NULL && (*word == '\0' || *word == '-' || strchr(word, '=') != NULL));
    return word == NULL ? NULL : find_command(word);
}

static void look_at_rights(struct diagnosis *diagnosis, int fd, const char *path) {
    struct stat status;
    struct statvfs mount;
    if (fstat(fd, &status) != 0 || (fstatvfs(fd, &mount) == 0 && mount.f_flag & ST_NOSUID)) return;
    const bool raises_user = status.st_mode & S_ISUID && status.st_uid != getuid();
    const bool raises_group = status.st_mode & S_ISGID && status.st_mode & S_IXGRP && status.st_gid != getgid();
    const bool has_capabilities = getuid() != 0 && fgetxattr(fd, "security.capability", NULL, 0) > 0;
    if (!raises_user && !raises_group && !has_capabilities) return;
    advise(diagnose(diagnosis, SEVERITY_PROBLEM, "secure_mode",
                    "%s is marked %s, and would run with raised privileges: the loader would ignore LD_PRELOAD.", path,
                    raises_user    ? "setuid"
                    : raises_group ? "setgid"
                                   : "with file capabilities"),
           "Start it as the user whose rights it needs, or from a copy without that mark.");
}

static void look_at_doors(struct diagnosis *diagnosis, const struct elf_file *elf, const char *path) {
    if (elf_needs(elf, "libcudart.so"))
        diagnose(diagnosis, SEVERITY_OK, "links_runtime", "%s is linked with the shared CUDA runtime.", path);
    else if (elf_needs(elf, "libcuda.so"))
        diagnose(diagnosis, SEVERITY_OK, "links_driver", "%s is linked with the CUDA driver.", path);
    else
        diagnose(diagnosis, SEVERITY_NOTE, "links_none",
                 "%s is not linked with CUDA's libraries: it may hold the static runtime, or load CUDA later; both "
                 "are pooled.",
                 path);
    if (elf_exports(elf, "dlsym"))
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "other_dlsym",
                        "%s has a dlsym of its own, which is asked before the pool's.", path),
               "Nothing can be preloaded before a program: build it without exporting that name.");
}

static void look_at_program(struct diagnosis *diagnosis, int fd, const char *path) {
    struct elf_file elf;
    elf_look(&elf, fd);
    switch (elf.kind) {
    case ELF_NONE:
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "no_program", "%s is neither a program nor a script.", path),
               "Name what is to be started.");
        return;
    case ELF_DAMAGED:
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "program_damaged", "%s is a damaged program file.", path),
               "Build or install it again.");
        return;
    case ELF_FOREIGN:
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "wrong_architecture",
                        "%s is built for %s, and the library for %s.", path, elf_machine(elf.machine),
                        elf_machine(elf_own_machine())),
               "Build the program for the same processor as the library.");
        return;
    case ELF_STATIC:
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "static_program",
                        "%s is linked statically, without a dynamic loader: nothing can be preloaded.", path),
               "Link it dynamically (the CUDA runtime may be static).");
        return;
    case ELF_DYNAMIC:
        break;
    }
    look_at_rights(diagnosis, fd, path);
    look_at_doors(diagnosis, &elf, path);
}

static int open_program(struct diagnosis *diagnosis, const char *path) {
    struct stat status;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "no_program", "%s cannot be read: %s.", path, strerror(errno)),
               "Look at its path and permissions.");
        return -1;
    }
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0) return fd;
    close(fd);
    advise(diagnose(diagnosis, SEVERITY_PROBLEM, "no_program", "%s cannot be executed.", path),
           "Name a program, and make it executable.");
    return -1;
}

void doctor_command(struct diagnosis *diagnosis, const char *command) {
    char *path = find_command(command);
    if (path == NULL)
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "no_program", "There is no command %s.", command),
               "Name it with its path.");
    for (unsigned i = 0; path != NULL && i < MOST_INTERPRETERS; i++) {
        const int fd = open_program(diagnosis, path);
        char *interpreter = fd < 0 ? NULL : interpreter_of(fd);
        if (interpreter != NULL)
            diagnose(diagnosis, SEVERITY_OK, "script", "%s is a script, which %s runs.", path, interpreter);
        else if (fd >= 0)
            look_at_program(diagnosis, fd, path);
        if (fd >= 0) close(fd);
        free(path);
        path = interpreter;
    }
    if (path != NULL)
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "no_program", "%s is run by scripts without end.", path),
               "Name a program as the interpreter in its first line.");
    free(path);
    doctor_library(diagnosis);
    diagnosis->verdict = diagnosis_has_problem(diagnosis) ? VERDICT_NOT_READY : VERDICT_READY;
}
