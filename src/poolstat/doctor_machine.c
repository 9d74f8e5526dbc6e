/* SPDX-License-Identifier: MIT
 *
 * `doctor` without a process: may a program be pooled on this machine, by this user, in this environment? And which
 * programs use CUDA now without the pool?
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "diagnosis.h"
#include "library.h"
#include "memory.h"
#include "poolcuda/stats.h"
#include "text.h"

#define SHOWN 16u /* programs that use CUDA without the pool */

static char *shared_memory_folder(uint32_t pid) {
    const char *folder = getenv("POOLSTAT_SHM_DIR");
    if (folder == NULL || folder[0] == '\0') folder = "/dev/shm";
    return pid == 0 || folder[0] != '/' ? memory_copy(folder) : memory_format("/proc/%u/root%s", pid, folder);
}

void doctor_shared_memory(struct diagnosis *diagnosis, uint32_t pid) {
    struct statvfs room;
    char *folder = shared_memory_folder(pid);
    if (statvfs(folder, &room) != 0) {
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "shared_memory_missing",
                        "%s cannot be used (%s): programs are pooled, but publish no figures.", folder,
                        strerror(errno)),
               "Mount a tmpfs there.");
    } else if (room.f_flag & ST_RDONLY || (pid == 0 && access(folder, W_OK | X_OK) != 0)) {
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "shared_memory_missing",
                        "%s cannot be written: programs are pooled, but publish no figures.", folder),
               "Mount it writable, with mode 1777.");
    } else if (room.f_bavail < POOLCUDA_SHM_MAX_BYTES / room.f_bsize) {
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "shared_memory_full",
                        "%s has %s left, too little for a process's figures: it is pooled, but publishes none.", folder,
                        text_bytes((uint64_t)room.f_bavail * room.f_bsize).s),
               "Remove what is not needed there, or mount a larger one (docker run --shm-size).");
    } else {
        diagnose(diagnosis, SEVERITY_OK, "shared_memory", "There is room for figures in %s.", folder);
    }
    free(folder);
}

void doctor_library(struct diagnosis *diagnosis) {
    char tried[2048];
    struct elf_file elf;
    struct statvfs mount;
    char *path = library_find(tried, sizeof(tried));
    const int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "library_missing", LIBRARY_NAME " was not found (%s).",
                        path == NULL ? tried : path),
               "Install it beside poolstat, or set POOLSTAT_LIBRARY.");
        free(path);
        return;
    }
    elf_look(&elf, fd);
    const bool is_noexec = fstatvfs(fd, &mount) == 0 && mount.f_flag & ST_NOEXEC;
    close(fd);
    if (elf.kind != ELF_DYNAMIC)
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "library_wrong", "%s is no library for this processor (%s).", path,
                        elf_machine(elf_own_machine())),
               "Install the library that was built for this machine.");
    else if (is_noexec)
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "library_noexec",
                        "%s lies on a file system from which nothing may be executed (noexec).", path),
               "Put the library on another one.");
    else if (strpbrk(path, ":;$") != NULL)
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "library_path",
                        "The path of %s holds ':', ';' or '$', which LD_PRELOAD cannot express.", path),
               "Install it elsewhere.");
    else
        diagnose(diagnosis, SEVERITY_OK, "library", "The library is there: %s", path);
    free(path);
}

static void look_at_driver(struct diagnosis *diagnosis) {
    if (access("/dev/nvidiactl", F_OK) != 0)
        advise(diagnose(diagnosis, SEVERITY_NOTE, "no_gpu",
                        "This machine has no NVIDIA driver, or it is not seen here "
                        "(/dev/nvidiactl)."),
               "In a container, start it with access to the GPU; to try the pool without one, use the simulated CUDA "
               "(poolcuda-with-sim).");
    else if (access("/dev/nvidiactl", R_OK | W_OK) != 0)
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "gpu_denied",
                        "This user may not use the GPU (/dev/nvidiactl: %s).", strerror(errno)),
               "Join the group that may (often video or render).");
    else
        diagnose(diagnosis, SEVERITY_OK, "gpu", "An NVIDIA driver is there.");
}

/* Names in this shell reach every program that it starts. */
static void look_at_environment(struct diagnosis *diagnosis) {
    const char *list = getenv("LD_PRELOAD"), *enable = getenv("POOL_ENABLE");
    size_t size = 0, used = 0;
    if (preload_names_library(list))
        diagnose(diagnosis, SEVERITY_NOTE, "preload_exported",
                 "LD_PRELOAD names the library in this environment: every program started from here is pooled.");
    if (enable != NULL && strcmp(enable, "0") == 0)
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "disabled",
                        "POOL_ENABLE=0 is set in this environment: nothing started from here is pooled."),
               "Unset it.");
    for (size_t i = 0; environ[i] != NULL; i++) size += strlen(environ[i]) + 1;
    char *strings = memory_new(size + 1, 1);
    for (size_t i = 0; environ[i] != NULL; i++) {
        const size_t length = strlen(environ[i]) + 1;
        memcpy(strings + used, environ[i], length);
        used += length;
    }
    doctor_variables(diagnosis, strings, used, NULL);
    free(strings);
}

static void look_at_segments(struct diagnosis *diagnosis, const struct collection *collection) {
    size_t pooled = 0, denied = 0, ended = 0;
    for (size_t i = 0; i < collection->count; i++) {
        const struct process *process = &collection->processes[i];
        pooled += process->liveness == LIVENESS_ALIVE && process->code == CODE_OK;
        denied += process->liveness == LIVENESS_ALIVE && process->code == CODE_DENIED;
        ended += process->liveness == LIVENESS_ENDED;
        if (process->liveness != LIVENESS_ALIVE || process->code != CODE_DAMAGED) continue;
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "figures_damaged", "Process %u: the segment of its figures %s.",
                        process->pid, process->why),
               "See: poolstat doctor %u", process->pid);
    }
    diagnose(diagnosis, SEVERITY_OK, "processes", "%zu process%s on the pool can be read.", pooled,
             pooled == 1 ? "" : "es");
    if (denied != 0)
        advise(diagnose(diagnosis, SEVERITY_NOTE, "figures_denied", "%zu more belong%s to other users.", denied,
                        denied == 1 ? "s" : ""),
               "Run poolstat as that user, or as root.");
    if (ended != 0)
        diagnose(diagnosis, SEVERITY_NOTE, "figures_left",
                 "%zu segment%s left of processes that were killed; the next pooled process of the same user removes "
                 "them.",
                 ended, ended == 1 ? " is" : "s are");
}

/* Programs with the driver and without the library. */
static void look_at_programs(struct diagnosis *diagnosis) {
    uint32_t *pids = procfs_pids();
    size_t count = 0;
    for (size_t i = 0; pids[i] != 0; i++) {
        struct evidence evidence;
        if (!evidence_gather(&evidence, pids[i])) continue;
        if (evidence_file(&evidence, "libcuda.so") != NULL && evidence_file(&evidence, LIBRARY_NAME) == NULL &&
            count++ < SHOWN)
            advise(diagnose(diagnosis, SEVERITY_NOTE, "not_pooled", "Process %u (%s) uses CUDA without the pool.",
                            pids[i], evidence.command == NULL ? "?" : evidence.command),
                   "Why: poolstat doctor %u", pids[i]);
        evidence_free(&evidence);
    }
    if (count > SHOWN) diagnose(diagnosis, SEVERITY_NOTE, "not_pooled", "So do %zu more.", count - SHOWN);
    free(pids);
}

void doctor_machine(struct diagnosis *diagnosis, const struct collection *collection) {
    doctor_library(diagnosis);
    doctor_shared_memory(diagnosis, 0);
    look_at_driver(diagnosis);
    look_at_environment(diagnosis);
    diagnosis->verdict = diagnosis_has_problem(diagnosis) ? VERDICT_NOT_READY : VERDICT_READY;
    look_at_segments(diagnosis, collection);
    look_at_programs(diagnosis);
}
