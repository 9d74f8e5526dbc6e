/* SPDX-License-Identifier: MIT
 *
 * `doctor PID`: is the library in the process, and if not, why; what may keep calls from it; and whether its figures
 * can be read.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "diagnosis.h"
#include "library.h"
#include "memory.h"
#include "text.h"

#define START "Start it with: poolstat run -- COMMAND"

/* What no preload can reach. True when that is all there is to say. */
static bool cannot_be_preloaded(struct diagnosis *diagnosis, const struct evidence *evidence) {
    struct elf_file elf = {0};
    char *path = memory_format("/proc/%u/exe", evidence->process.pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    free(path);
    if (fd >= 0) {
        elf_look(&elf, fd);
        close(fd);
    }
    if (elf.kind == ELF_FOREIGN)
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "wrong_architecture",
                        "The program is built for %s, and the library for %s.", elf_machine(elf.machine),
                        elf_machine(elf_own_machine())),
               "Build the program for the same processor as the library.");
    else if (elf.kind == ELF_STATIC)
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "static_program",
                        "The program is linked statically, without a dynamic loader: nothing can be preloaded."),
               "Link it dynamically (the CUDA runtime may be static).");
    else if (evidence->secure)
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "secure_mode",
                        "The program runs with raised privileges (setuid, setgid or file capabilities): the loader "
                        "ignores LD_PRELOAD."),
               "Start it as the user whose rights it needs, without that mark on its file.");
    else
        return false;
    return evidence_file(evidence, LIBRARY_NAME) == NULL;
}

/* LD_PRELOAD names the library by this path, and yet it is not there. */
static void explain_failed_entry(struct diagnosis *diagnosis, const struct evidence *evidence, const char *path) {
    struct elf_file elf;
    struct statvfs mount;
    const char *id = "preload_failed";
    const int fd = path[0] == '/' ? evidence_open(evidence, path) : -1;
    if (path[0] != '/') {
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, id,
                        "LD_PRELOAD names %s without its folder, and the loader did not find it.", path),
               "Name it with its whole path, or run ldconfig once it is installed.");
        return;
    }
    if (fd < 0) {
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, id, "LD_PRELOAD names %s, which the process cannot see.", path),
               "Correct the path; in a container, mount the library there.");
        return;
    }
    elf_look(&elf, fd);
    const bool is_noexec = fstatvfs(fd, &mount) == 0 && mount.f_flag & ST_NOEXEC;
    close(fd);
    if (elf.kind != ELF_DYNAMIC)
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, id, "LD_PRELOAD names %s, which is no library for this processor.",
                        path),
               "Install the library that was built for this machine.");
    else if (is_noexec)
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, id,
                        "LD_PRELOAD names %s, on a file system from which nothing may be executed (noexec).", path),
               "Put the library on another one.");
    else
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, id, "LD_PRELOAD names %s, and yet it is not loaded.", path),
               "Look at what the loader says at the program's start (LD_DEBUG=libs).");
}

static void explain_absence(struct diagnosis *diagnosis, const struct evidence *evidence, const char *list) {
    const char *entry;
    diagnosis->verdict = VERDICT_NOT_POOLED;
    if (cannot_be_preloaded(diagnosis, evidence)) return;
    if (!preload_names_library(list)) {
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "not_preloaded",
                        "The library is not loaded, and LD_PRELOAD did not name it when the program began%s.",
                        list == NULL ? " (it was not set)" : ""),
               START);
        return;
    }
    for (size_t length; (length = preload_entry(&list, &entry)) > 0;) {
        char *path = memory_format("%.*s", (int)length, entry);
        if (strncmp(base_name(path), LIBRARY_NAME, strlen(LIBRARY_NAME)) == 0)
            explain_failed_entry(diagnosis, evidence, path);
        free(path);
    }
}

static bool is_in_system_list(const struct evidence *evidence) {
    char text[4096];
    const int fd = evidence_open(evidence, "/etc/ld.so.preload");
    if (fd < 0) return false;
    const ssize_t length = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
    return preload_names_library(text);
}

static void look_at_library(struct diagnosis *diagnosis, const struct evidence *evidence, const char *list) {
    const struct mapped_file *library = evidence_file(evidence, LIBRARY_NAME);
    diagnose(diagnosis, SEVERITY_OK, "preloaded", "The library is loaded: %s", library->path);
    if (library->deleted)
        advise(diagnose(diagnosis, SEVERITY_NOTE, "library_replaced",
                        "The library's file was replaced or removed since the program began: it goes on with the old "
                        "one."),
               "Start the program again to have the new one.");
    if (!preload_names_library(list) && !is_in_system_list(evidence))
        advise(diagnose(diagnosis, SEVERITY_NOTE, "not_by_preload",
                        "No LD_PRELOAD names the library: the program is linked with it, or has opened it, and may "
                        "have found CUDA's functions before."),
               START);
    doctor_dlsym(diagnosis, evidence, list);
}

static void look_at_settings(struct diagnosis *diagnosis, const struct evidence *evidence) {
    const char *enable = evidence_variable(evidence, "POOL_ENABLE");
    const bool is_enabled = enable != NULL && strcmp(enable, "1") == 0;
    if (enable != NULL && strcmp(enable, "0") == 0)
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "disabled", "POOL_ENABLE=0: every call passes through."),
               "Start the program without it.");
    if (evidence_file(evidence, "libsanitizer-collection") == NULL &&
        evidence_file(evidence, "libsanitizer-public") == NULL)
        return;
    if (is_enabled)
        advise(diagnose(diagnosis, SEVERITY_NOTE, "compute_sanitizer",
                        "compute-sanitizer is loaded, and POOL_ENABLE=1 pools all the same: it sees the pool's "
                        "segments and not the program's blocks."),
               "Leave out POOL_ENABLE to look for errors of the program.");
    else
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "compute_sanitizer",
                        "compute-sanitizer is loaded: every call passes through, so that it sees the program's own "
                        "allocations."),
               "Run without compute-sanitizer, or with POOL_ENABLE=1.");
}

/* A child of a pooled process passes everything through, and publishes nothing. */
static bool may_be_forked(struct diagnosis *diagnosis, const struct evidence *evidence) {
    struct evidence parent;
    bool is = false;
    if (evidence->parent == 0 || !evidence_gather(&parent, evidence->parent)) return false;
    if (parent.permitted && parent.program != NULL && evidence->program != NULL &&
        strcmp(parent.program, evidence->program) == 0 && evidence_file(&parent, POOLCUDA_SHM_PREFIX) != NULL) {
        is = true;
        advise(diagnose(diagnosis, SEVERITY_NOTE, "forked_child",
                        "Its parent, process %u, runs the same program and is pooled: if this one was forked after the "
                        "parent's first CUDA call, all its calls pass through.",
                        evidence->parent),
               "Fork before the first CUDA call, or start children anew (Python: the start method spawn).");
    }
    evidence_free(&parent);
    return is;
}

static void explain_missing_figures(struct diagnosis *diagnosis, const struct evidence *evidence) {
    const char *stats = evidence_variable(evidence, "POOL_STATS");
    const struct mapped_file *figures = evidence_file(evidence, POOLCUDA_SHM_PREFIX);
    diagnosis->verdict = VERDICT_UNKNOWN;
    if (stats != NULL && strcmp(stats, "0") == 0) {
        advise(diagnose(diagnosis, SEVERITY_NOTE, "figures_off",
                        "POOL_STATS=0: it publishes no figures, so that no more can be said."),
               "Start the program without it to see its memory.");
        return;
    }
    if (figures != NULL) {
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "figures_removed", "%s %s.", figures->path,
                        figures->deleted ? "was removed while the program runs"
                                         : "is in use by it, and cannot be found from here"),
               figures->deleted ? "Leave the files of running processes there; start the program again to see it."
                                : "Run poolstat where its /dev/shm can be seen, such as in the same container.");
        return;
    }
    doctor_shared_memory(diagnosis, evidence->process.pid);
    if (may_be_forked(diagnosis, evidence)) return;
    if (diagnosis_has(diagnosis, "shared_memory_full") || diagnosis_has(diagnosis, "shared_memory_missing")) return;
    const bool has_driver = evidence_file(evidence, "libcuda.so") != NULL;
    diagnosis->verdict = has_driver && diagnosis_has_problem(diagnosis) ? VERDICT_NOT_POOLED : VERDICT_NOT_YET;
    if (!has_driver)
        advise(diagnose(diagnosis, SEVERITY_NOTE, "no_cuda_call",
                        "It has made no CUDA call yet: the driver (libcuda.so) is not loaded."),
               "Look again when it uses the GPU; a program that only starts others may never do.");
    else
        advise(diagnose(diagnosis, SEVERITY_NOTE, "no_call_seen",
                        "The driver (libcuda.so) is loaded, and no call has come to the pool yet."),
               "Look again when it has allocated; if that stays so, something finds the driver behind the pool's back "
               "(RTLD_DEEPBIND, a loader of its own).");
}

static void look_at_file(struct diagnosis *diagnosis, const struct process *process) {
    const bool is_other_layout = strstr(process->why, "layout version") != NULL;
    diagnosis->verdict = VERDICT_UNKNOWN;
    if (process->code == CODE_DENIED)
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "figures_denied", "Its figures may not be read: %s",
                        process->file.path),
               "Run poolstat as the user who owns them, or as root.");
    else
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, is_other_layout ? "layout_differs" : "figures_damaged",
                        "The segment of its figures %s.", process->why),
               is_other_layout ? "Use poolstat and library of one release." : "Start the program again.");
}

void doctor_process(struct diagnosis *diagnosis, const struct evidence *evidence, const struct process *process) {
    const char *list = evidence_variable(evidence, "LD_PRELOAD");
    const struct segment *segment = process == NULL ? NULL : process->segment;
    if (evidence_file(evidence, LIBRARY_NAME) == NULL && process == NULL) {
        explain_absence(diagnosis, evidence, list);
    } else {
        if (evidence_file(evidence, LIBRARY_NAME) != NULL) look_at_library(diagnosis, evidence, list);
        look_at_settings(diagnosis, evidence);
        if (process == NULL)
            explain_missing_figures(diagnosis, evidence);
        else if (segment == NULL)
            look_at_file(diagnosis, process);
        else
            doctor_figures(diagnosis, process);
    }
    doctor_variables(diagnosis, evidence->environment, evidence->environment_bytes, segment);
}
