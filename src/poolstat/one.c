/* SPDX-License-Identifier: MIT
 *
 * Chooses the process that a command is about, and says why there is none.
 */
#include "one.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "choose.h"
#include "procfs.h"
#include "repeat.h"
#include "report.h"
#include "text.h"

/* What the turns have in common. */
struct asked {
    const char *command;
    uint32_t pid; /* 0: only the options choose */
    one_answer *answer;
    void *context;
};

/* How well a process fits a pid that the user gave; the higher the better. */
enum fit { FIT_NONE, FIT_ENDED, FIT_UNSEEN, FIT_INNER, FIT_EXACT };

static enum fit fit_of(const struct process *process, uint32_t pid) {
    if (process->liveness == LIVENESS_ALIVE && process->pid == pid) return FIT_EXACT;
    if (process->inner_pid != pid) return FIT_NONE;
    if (process->liveness == LIVENESS_ALIVE) return FIT_INNER;
    return process->liveness == LIVENESS_UNSEEN ? FIT_UNSEEN : FIT_ENDED;
}

/* The best fit, and whether there is only one so good. */
static const struct process *choose(const struct collection *collection, uint32_t pid, enum fit *best, bool *unique) {
    const struct process *chosen = NULL;
    *best = FIT_NONE;
    *unique = true;
    for (size_t i = 0; i < collection->count; i++) {
        const enum fit fit = fit_of(&collection->processes[i], pid);
        if (fit == FIT_NONE || fit < *best) continue;
        *unique = fit > *best;
        *best = fit;
        chosen = &collection->processes[i];
    }
    return chosen;
}

static bool parse_pid(const char *text, uint32_t *pid) {
    char *end;
    if (text[0] < '1' || text[0] > '9') return false;
    const unsigned long value = strtoul(text, &end, 10);
    if (*end != '\0' || value > INT32_MAX) return false;
    *pid = (uint32_t)value;
    return true;
}

static int report_missing(const struct options *options, uint32_t pid) {
    struct procfs_process process;
    if (!procfs_read(pid, &process)) return report(options, CODE_GONE, "there is no process %u (any more)", pid);
    return report(options, CODE_NONE,
                  "process %u does not run on the pool, made no CUDA call yet, or has POOL_STATS=0; start it with: "
                  "poolstat run -- COMMAND",
                  pid);
}

static int report_unreadable(const struct options *options, const struct process *process, uint32_t pid) {
    char *path = text_safe(process->file.path, strlen(process->file.path));
    const int code =
        process->code == CODE_DENIED
            ? report(options, CODE_DENIED,
                     "process %u belongs to another user: run poolstat as that user, or as root (%s)", pid, path)
            : report(options, process->code, "process %u: the segment %s (%s)", pid, process->why, path);
    free(path);
    return code;
}

/* Without a PID: the one that the options choose. */
static int answer_chosen(const struct options *options, const struct collection *collection,
                         const struct asked *asked) {
    const struct process *chosen = NULL;
    size_t count = 0;
    for (size_t i = 0; i < collection->count; i++) {
        const struct process *process = &collection->processes[i];
        if (process->liveness == LIVENESS_ENDED && !options->choice.all) continue;
        chosen = process;
        count++;
    }
    if (count == 0)
        return report(options, CODE_NONE, "no process on the pool is one of those chosen; all of them: poolstat ls");
    if (count > 1)
        return report(options, CODE_USAGE, "%zu processes are chosen, and %s is about one; a list: poolstat ls", count,
                      asked->command);
    return chosen->code == CODE_OK ? asked->answer(options, chosen, asked->context)
                                   : report_unreadable(options, chosen, chosen->inner_pid);
}

static int answer_pid(const struct options *options, const struct collection *collection, const struct asked *asked) {
    const uint32_t pid = asked->pid;
    enum fit fit;
    bool unique;
    const struct process *process = choose(collection, pid, &fit, &unique);
    if (process == NULL && choose_is_narrowed(&options->choice))
        return report(options, CODE_NONE, "process %u is not one of those that the options choose", pid);
    if (process == NULL) return report_missing(options, pid);
    if (fit == FIT_ENDED && (!options->choice.all || process->segment == NULL))
        return report(options, CODE_GONE, "process %u has ended; what its segment holds is past", pid);
    if (!unique)
        return report(options, CODE_USAGE,
                      "several processes have the pid %u in their containers; use the pid on this machine (poolstat "
                      "lists both)",
                      pid);
    return process->code == CODE_OK ? asked->answer(options, process, asked->context)
                                    : report_unreadable(options, process, pid);
}

static int answer(const struct options *options, uint64_t turn, void *context) {
    const struct asked *asked = context;
    struct collection collection;
    choose_collect(&options->choice, &collection);
    if (turn != 0 && !options->json) fputs("\n\n", stdout);
    const int code =
        asked->pid == 0 ? answer_chosen(options, &collection, asked) : answer_pid(options, &collection, asked);
    collect_free(&collection);
    return code;
}

int one_repeat(const struct options *options, int argc, char **argv, one_answer *function, void *context) {
    struct asked asked = {.command = argv[0], .answer = function, .context = context};
    if (argc == 1 && !choose_is_narrowed(&options->choice))
        return report(options, CODE_USAGE, "%s: a process id is missing; the list of them: poolstat ls", argv[0]);
    if (argc > 1 && !parse_pid(argv[1], &asked.pid))
        return report(options, CODE_USAGE, "'%s' is no process id; the list of them: poolstat ls", argv[1]);
    return repeat(options, false, answer, &asked);
}
