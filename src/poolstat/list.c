/* SPDX-License-Identifier: MIT
 *
 * `ls`, and `poolstat` without a command: the processes that run on the pool, one row for each process and device.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "choose.h"
#include "commands.h"
#include "derive.h"
#include "list.h"
#include "memory.h"
#include "procfs.h"
#include "repeat.h"
#include "report.h"
#include "table.h"
#include "text.h"

struct tally {
    size_t shown, damaged, denied, unseen;
};

/* What is kept from one answer to the next. */
struct listing {
    char *notes; /* what was said on stderr: it is not said again */
};

static bool is_shown(const struct options *options, const struct process *process) {
    return process->code == CODE_OK && (process->liveness == LIVENESS_ALIVE || options->choice.all);
}

static bool is_problem(const struct process *process) {
    return process->liveness == LIVENESS_ALIVE && process->code == CODE_DAMAGED;
}

static struct tally count_processes(const struct options *options, const struct collection *collection) {
    struct tally tally = {0};
    for (size_t i = 0; i < collection->count; i++) {
        const struct process *process = &collection->processes[i];
        tally.shown += is_shown(options, process);
        tally.damaged += is_problem(process);
        tally.denied += process->liveness == LIVENESS_ALIVE && process->code == CODE_DENIED;
        tally.unseen += process->liveness == LIVENESS_UNSEEN && !options->choice.all;
    }
    return tally;
}

/* One for each device, or one without: the processes' sums are kept in *sums, one array each. */
static size_t make_rows(const struct options *options, const struct collection *collection, struct row **rows,
                        struct device_sum ***sums) {
    size_t count = 0;
    *rows = NULL;
    *sums = memory_new(collection->count, sizeof(**sums));
    for (size_t i = 0; i < collection->count; i++) {
        const struct process *process = &collection->processes[i];
        if (!is_shown(options, process)) continue;
        const size_t devices = derive_devices(process->segment, &(*sums)[i]);
        *rows = memory_grow(*rows, count + devices + 1, sizeof(**rows));
        for (size_t j = 0; j < devices; j++) (*rows)[count++] = (struct row){process, &(*sums)[i][j]};
        if (devices == 0) (*rows)[count++] = (struct row){process, NULL};
    }
    return count;
}

static void print_rows(const struct options *options, const struct collection *collection, uint64_t turn) {
    struct row *rows;
    struct device_sum **sums;
    const size_t count = make_rows(options, collection, &rows, &sums);
    if (options->csv) {
        table_print_csv(options, rows, count, turn == 0 && !options->no_header);
    } else if (count != 0) {
        if (turn != 0 && !options->no_header) putchar('\n');
        table_print(options, rows, count);
    }
    for (size_t i = 0; i < collection->count; i++) free(sums[i]);
    free(sums);
    free(rows);
}

static void note_problem(FILE *notes, const struct process *process) {
    char *path = text_safe(process->file.path, strlen(process->file.path));
    fprintf(notes, "poolstat: process %u: the segment %s (%s)\n", process->pid, process->why, path);
    free(path);
}

/* Processes were chosen by their pids, and none is there: nothing will change that. */
static bool have_ended(const struct choice *choice) {
    struct procfs_process process;
    for (size_t i = 0; i < choice->pid_count; i++)
        if (procfs_read(choice->pids[i], &process)) return false;
    return choice->pid_count != 0;
}

/* What is to be said beside the table, and the exit code. */
static enum code conclude(const struct options *options, const struct tally *tally, char *message, size_t size) {
    message[0] = '\0';
    if (tally->damaged != 0) {
        snprintf(message, size, "%zu segment%s could not be read", tally->damaged, tally->damaged == 1 ? "" : "s");
        return CODE_DAMAGED;
    }
    if (tally->denied != 0)
        snprintf(message, size, "%zu process%s of other users not shown: run poolstat as that user, or as root",
                 tally->denied, tally->denied == 1 ? "" : "es");
    if (tally->shown != 0) return CODE_OK;
    if (tally->denied != 0) return CODE_DENIED;
    if (choose_is_narrowed(&options->choice))
        snprintf(message, size, "no process on the pool is one of those chosen; all of them: poolstat ls");
    else
        snprintf(message, size, "no process runs on the pool; start one with: poolstat run -- COMMAND");
    return CODE_NONE;
}

static json_t *make_document(const struct options *options, const struct collection *collection,
                             const struct tally *tally, enum code code, const char *message) {
    json_t *document = json_document(), *processes = json_array(), *problems = json_array();
    for (size_t i = 0; i < collection->count; i++) {
        const struct process *process = &collection->processes[i];
        if (is_shown(options, process)) json_array_append_new(processes, json_listed_process(process));
        if (is_problem(process)) json_array_append_new(problems, json_problem(process));
    }
    json_object_set_new(document, "processes", processes);
    json_object_set_new(document, "problems", problems);
    json_object_set_new(
        document, "not_shown",
        json_pack("{s:I,s:I}", "denied", (json_int_t)tally->denied, "unseen", (json_int_t)tally->unseen));
    json_object_set_new(document, "error", json_error(code, message));
    return document;
}

json_t *list_document(const struct options *options, const struct collection *collection) {
    char message[256];
    const struct tally tally = count_processes(options, collection);
    const enum code code = conclude(options, &tally, message, sizeof(message));
    return make_document(options, collection, &tally, code, message);
}

/* On stderr, and when repeated, only what is new. */
static void print_notes(struct listing *listing, const struct collection *collection, const struct tally *tally,
                        const char *message) {
    char *text = NULL;
    size_t size = 0;
    FILE *notes = open_memstream(&text, &size);
    if (notes == NULL) return;
    for (size_t i = 0; i < collection->count; i++)
        if (is_problem(&collection->processes[i])) note_problem(notes, &collection->processes[i]);
    if (tally->unseen != 0)
        fprintf(notes,
                "poolstat: %zu segment%s of pid namespaces that cannot be seen from here: run poolstat on the host\n",
                tally->unseen, tally->unseen == 1 ? "" : "s");
    if (message[0] != '\0') fprintf(notes, "poolstat: %s\n", message);
    fclose(notes);
    if (listing->notes == NULL || strcmp(listing->notes, text) != 0) fputs(text, stderr);
    free(listing->notes);
    listing->notes = text;
}

static int list(const struct options *options, uint64_t turn, void *context) {
    struct listing *listing = context;
    struct collection collection;
    char message[256];
    choose_collect(&options->choice, &collection);
    const struct tally tally = count_processes(options, &collection);
    enum code code = conclude(options, &tally, message, sizeof(message));
    if (code == CODE_NONE && have_ended(&options->choice)) {
        code = CODE_GONE;
        snprintf(message, sizeof(message), "there is no process of those that -p names (any more)");
    }
    if (options->json)
        json_print(make_document(options, &collection, &tally, code, message));
    else
        print_rows(options, &collection, turn);
    fflush(stdout);
    print_notes(listing, &collection, &tally, message);
    collect_free(&collection);
    return code;
}

int command_list(const struct options *options, int argc, char **argv) {
    struct listing listing = {0};
    (void)argc;
    (void)argv;
    if (options->json && (options->csv || options->columns != NULL))
        return report(options, CODE_USAGE, "--json has all fields in a form of its own: it does not go with --%s",
                      options->csv ? "csv" : "columns");
    char *wrong = table_check_columns(options);
    if (wrong != NULL) {
        const int code = report(options, CODE_USAGE, "%s", wrong);
        free(wrong);
        return code;
    }
    const int code = repeat(options, true, list, &listing);
    free(listing.notes);
    return code;
}
