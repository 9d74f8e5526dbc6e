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
#include "grid.h"
#include "json.h"
#include "report.h"
#include "text.h"
#include "words.h"

struct tally {
    size_t shown, damaged, denied, unseen;
    bool has_inner_pids;  /* some process has another pid in its own namespace, or none that we see */
    bool has_marks;       /* some process does not just run */
    bool has_approximate; /* the figures of some process are */
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
        const bool shown = is_shown(options, process);
        tally.shown += shown;
        tally.damaged += is_problem(process);
        tally.denied += process->liveness == LIVENESS_ALIVE && process->code == CODE_DENIED;
        tally.unseen += process->liveness == LIVENESS_UNSEEN && !options->choice.all;
        tally.has_approximate |= shown && derive_is_approximate(process->segment);
        tally.has_inner_pids |= shown && words_pid(process) != process->inner_pid;
        tally.has_marks |= shown && words_mark(process).s[0] != '\0';
    }
    return tally;
}

static void put_identity(struct grid *grid, const struct process *process, const struct tally *tally) {
    const struct poolcuda_header *header = &process->segment->header;
    char *command = text_safe(header->command, sizeof(header->command));
    grid_put(grid, words_pid(process) == 0 ? "-" : text_count(words_pid(process)).s);
    if (tally->has_inner_pids) grid_put(grid, text_count(process->inner_pid).s);
    grid_put(grid, command);
    if (tally->has_marks) grid_put(grid, words_mark(process).s);
    free(command);
}

static void put_device(struct grid *grid, const struct device_sum *sum, const struct tally *tally) {
    grid_put(grid, text_count(sum->device < 0 ? TEXT_UNKNOWN : (uint64_t)sum->device).s);
    if (tally->has_approximate) grid_put(grid, sum->approximate ? "~" : "");
    grid_put(grid, text_bytes(sum->measures.live_bytes).s);
    grid_put(grid, text_bytes(sum->figures.reserved_bytes).s);
    grid_put(grid, text_bytes(sum->measures.cached_bytes).s);
    grid_put(grid, text_bytes(sum->figures.peak_reserved_bytes).s);
    grid_put(grid, text_ratio(sum->measures.hit_rate).s);
    grid_put(grid, text_ratio(sum->measures.external_fragmentation).s);
}

static void print_table(const struct options *options, const struct collection *collection, const struct tally *tally) {
    struct grid grid = {0};
    grid_column(&grid, "PID", GRID_RIGHT);
    if (tally->has_inner_pids) grid_column(&grid, "NSPID", GRID_RIGHT);
    grid_elastic_column(&grid, "COMMAND", GRID_LEFT);
    if (tally->has_marks) grid_column(&grid, "STATE", GRID_LEFT);
    grid_column(&grid, "DEV", GRID_RIGHT);
    if (tally->has_approximate) grid_column(&grid, "", GRID_RIGHT);
    static const char *const figures[] = {"LIVE", "RESERVED", "CACHED", "PEAK", "HITS", "EXTFRAG"};
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) grid_column(&grid, figures[i], GRID_RIGHT);
    for (size_t i = 0; i < collection->count; i++) {
        const struct process *process = &collection->processes[i];
        if (!is_shown(options, process)) continue;
        struct device_sum *sums;
        const size_t count = derive_devices(process->segment, &sums);
        for (size_t j = 0; j < count; j++) {
            put_identity(&grid, process, tally);
            put_device(&grid, &sums[j], tally);
        }
        free(sums);
        if (count != 0) continue;
        put_identity(&grid, process, tally);
        while (grid.cell_count % grid.column_count != 0) grid_put(&grid, "-");
    }
    grid_print(&grid, stdout, 0, options->width, true);
}

static void note_problem(const struct process *process) {
    char *path = text_safe(process->file.path, strlen(process->file.path));
    report_note("process %u: the segment %s (%s)", process->pid, process->why, path);
    free(path);
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

static void print_json(const struct options *options, const struct collection *collection, const struct tally *tally,
                       enum code code, const char *message) {
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
    json_print(document);
}

int command_list(const struct options *options, int argc, char **argv) {
    struct collection collection;
    (void)argc;
    (void)argv;
    char message[256];
    choose_collect(&options->choice, &collection);
    const struct tally tally = count_processes(options, &collection);
    const enum code code = conclude(options, &tally, message, sizeof(message));
    if (options->json)
        print_json(options, &collection, &tally, code, message);
    else if (tally.shown != 0)
        print_table(options, &collection, &tally);
    fflush(stdout);
    for (size_t i = 0; i < collection.count; i++)
        if (is_problem(&collection.processes[i])) note_problem(&collection.processes[i]);
    if (tally.unseen != 0)
        report_note("%zu segment%s of pid namespaces that cannot be seen from here: run poolstat on the host",
                    tally.unseen, tally.unseen == 1 ? "" : "s");
    if (message[0] != '\0') report_note("%s", message);
    collect_free(&collection);
    return code;
}
