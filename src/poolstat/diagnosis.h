/* SPDX-License-Identifier: MIT
 *
 * What `doctor` finds, and who looks for it. A finding is one sentence that says what is, and one that says what to do.
 * Its id is for scripts, and does not change.
 */
#ifndef POOLSTAT_DIAGNOSIS_H
#define POOLSTAT_DIAGNOSIS_H

#include <stdbool.h>
#include <stddef.h>

#include "collect.h"
#include "elf_file.h"
#include "evidence.h"

enum severity { SEVERITY_OK, SEVERITY_NOTE, SEVERITY_PROBLEM };

enum verdict {
    VERDICT_POOLED,
    VERDICT_NOT_POOLED,
    VERDICT_NOT_YET, /* preloaded, but no CUDA call was made that the pool could serve */
    VERDICT_UNKNOWN,
    VERDICT_READY, /* a program that is started now would be pooled */
    VERDICT_NOT_READY
};

struct finding {
    const char *id;
    enum severity severity;
    char *what, *advice; /* safe to print; advice may be NULL */
};

struct diagnosis {
    enum verdict verdict;
    struct finding *findings;
    size_t count, capacity;
};

/* Add a finding. What the format brings in may be of unknown contents: it is made safe. */
struct finding *diagnose(struct diagnosis *diagnosis, enum severity severity, const char *id, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void advise(struct finding *finding, const char *format, ...) __attribute__((format(printf, 2, 3)));

bool diagnosis_has_problem(const struct diagnosis *diagnosis);
bool diagnosis_has(const struct diagnosis *diagnosis, const char *id);
void diagnosis_free(struct diagnosis *diagnosis);

/* ---- who looks ---- */

/* doctor_process.c: how the program was loaded. `process`: what its figures are, NULL when it has none. */
void doctor_process(struct diagnosis *diagnosis, const struct evidence *evidence, const struct process *process);

/* doctor_figures.c: what the figures tell of a process that has some. */
void doctor_figures(struct diagnosis *diagnosis, const struct process *process);

/* doctor_machine.c: the library beside poolstat, shared memory, the driver, this user's environment. */
void doctor_machine(struct diagnosis *diagnosis, const struct collection *collection);
void doctor_library(struct diagnosis *diagnosis);
/* Room in the folder of shared memory, as the process `pid` sees it; 0: as we do. */
void doctor_shared_memory(struct diagnosis *diagnosis, uint32_t pid);

/* doctor_command.c: an executable before it is started. */
void doctor_command(struct diagnosis *diagnosis, const char *command);

/* doctor_variables.c: the POOL_* variables of an environment, a list of strings one after the other. `segment`: what
 * the library made of them, NULL when that is not known. */
void doctor_variables(struct diagnosis *diagnosis, const char *environment, size_t bytes,
                      const struct segment *segment);

/* doctor_preload.c: the next entry of a list as LD_PRELOAD has it; its length, 0 at the end. *at: moved behind it. */
size_t preload_entry(const char **at, const char **entry);
bool preload_names_library(const char *list);
/* Who answers dlsym before the library does. `list`: LD_PRELOAD of the process, may be NULL. */
void doctor_dlsym(struct diagnosis *diagnosis, const struct evidence *evidence, const char *list);

#endif
