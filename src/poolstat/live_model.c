/* SPDX-License-Identifier: MIT
 *
 * From one collection to the next: which process is which is told by its file, whose name holds pid and start time.
 */
#include "live_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "live_since.h"
#include "memory.h"
#include "text.h"
#include "words.h"

size_t live_history_values(const struct live_history *history, enum live_figure figure, double *values, size_t most) {
    const size_t count = history->count < most ? history->count : most;
    for (size_t i = 0; i < count; i++)
        values[i] = history->samples[figure][(history->next + LIVE_HISTORY - count + i) % LIVE_HISTORY];
    return count;
}

static void add_sample(struct live_row *row) {
    struct live_history *history = &row->history;
    const size_t at = history->next;
    history->samples[LIVE_FIGURE_LIVE][at] = (double)row->sum.measures.live_bytes;
    history->samples[LIVE_FIGURE_CACHED][at] = (double)row->sum.measures.cached_bytes;
    history->samples[LIVE_FIGURE_RESERVED][at] = (double)row->sum.figures.reserved_bytes;
    history->samples[LIVE_FIGURE_RATE][at] = row->alloc_rate;
    history->next = (at + 1) % LIVE_HISTORY;
    if (history->count < LIVE_HISTORY) history->count++;
}

const struct segment *live_segment(const struct live_process *process) {
    return process->since != NULL ? process->since : process->process.segment;
}

/* ---- processes ---- */

static void free_rows(struct live_process *process) {
    for (size_t i = 0; i < process->row_count; i++) free(process->rows[i]);
    free(process->rows);
}

static void free_process(struct live_process *process) {
    free_rows(process);
    since_free(process->since);
    since_free(process->then);
    collect_free_process(&process->process);
    free(process->command);
    free(process);
}

static struct live_process *find_process(const struct live_model *model, const struct found *file) {
    for (size_t i = 0; i < model->process_count; i++) {
        const struct found *known = &model->processes[i]->process.file;
        if (known->inode == file->inode && known->device == file->device && known->start_ticks == file->start_ticks)
            return model->processes[i];
    }
    return NULL;
}

struct live_process *live_model_process(const struct live_model *model, uint64_t id) {
    for (size_t i = 0; i < model->process_count; i++)
        if (model->processes[i]->id == id) return model->processes[i];
    return NULL;
}

static struct live_process *add_process(struct live_model *model) {
    struct live_process *process = memory_new(1, sizeof(*process));
    process->id = ++model->last_id;
    process->command = memory_copy("-");
    model->processes = memory_grow(model->processes, model->process_count + 1, sizeof(struct live_process *));
    model->processes[model->process_count++] = process;
    return process;
}

static void take_process(struct live_process *process, struct process *collected) {
    since_free(process->since);
    process->since = NULL;
    collect_free_process(&process->process);
    process->process = *collected;
    collected->file.path = NULL;
    collected->segment = NULL;
    if (process->process.segment == NULL) return;
    const struct poolcuda_header *header = &process->process.segment->header;
    free(process->command);
    process->command = text_safe(header->command, sizeof(header->command));
    if (process->then != NULL) process->since = since_make(process->process.segment, process->then);
}

/* ---- rows ---- */

static struct live_row *add_row(struct live_model *model, struct live_process *process) {
    struct live_row *row = memory_new(1, sizeof(*row));
    *row = (struct live_row){.id = ++model->last_id, .process = process, .alloc_rate = NAN};
    process->rows = memory_grow(process->rows, process->row_count + 1, sizeof(*process->rows));
    process->rows[process->row_count++] = row;
    return row;
}

/* The row of a device; one that had none yet becomes it. */
static struct live_row *row_of(struct live_model *model, struct live_process *process, int32_t device) {
    for (size_t i = 0; i < process->row_count; i++)
        if (process->rows[i]->has_device && process->rows[i]->sum.device == device) return process->rows[i];
    if (process->row_count == 1 && !process->rows[0]->has_device) return process->rows[0];
    return add_row(model, process);
}

static void set_counted(struct live_row *row, const struct segment *segment) {
    row->counted_allocs = row->sum.counters.allocs;
    row->counted_ns = segment->read_ns;
}

static void set_row(struct live_row *row, const struct device_sum *sum, const struct segment *segment) {
    const bool is_known = row->has_device && segment->read_ns > row->counted_ns;
    const double seconds = (double)(segment->read_ns - row->counted_ns) / 1e9;
    row->sum = *sum;
    row->has_device = true;
    row->alloc_rate = is_known ? (double)derive_difference(sum->counters.allocs, row->counted_allocs) / seconds : NAN;
    set_counted(row, segment);
    add_sample(row);
}

static bool has_device(const struct device_sum *sums, size_t count, int32_t device) {
    for (size_t i = 0; i < count; i++)
        if (sums[i].device == device) return true;
    return false;
}

static void drop_rows(struct live_process *process, const struct device_sum *sums, size_t count) {
    size_t kept = 0;
    for (size_t i = 0; i < process->row_count; i++) {
        struct live_row *row = process->rows[i];
        if (!row->has_device || has_device(sums, count, row->sum.device))
            process->rows[kept++] = row;
        else
            free(row);
    }
    process->row_count = kept;
}

static void update_rows(struct live_model *model, struct live_process *process) {
    const struct segment *segment = live_segment(process);
    struct device_sum *sums = NULL;
    const size_t count = segment == NULL ? 0 : derive_devices(segment, &sums);
    drop_rows(process, sums, count);
    for (size_t i = 0; i < count; i++) set_row(row_of(model, process, sums[i].device), &sums[i], segment);
    if (process->row_count == 0) add_row(model, process);
    free(sums);
}

/* After counters have begun anew, or are all again: what was shown before is not to be subtracted from. */
static void recount(struct live_process *process) {
    const struct segment *segment = live_segment(process);
    struct device_sum *sums = NULL;
    const size_t count = segment == NULL ? 0 : derive_devices(segment, &sums);
    for (size_t i = 0; i < process->row_count; i++)
        for (size_t j = 0; j < count; j++) {
            struct live_row *row = process->rows[i];
            if (!row->has_device || row->sum.device != sums[j].device) continue;
            row->sum = sums[j];
            set_counted(row, segment);
        }
    free(sums);
}

/* ---- which are shown ---- */

static bool contains(const char *text, const char *part) {
    return strcasestr(text, part) != NULL;
}

bool live_row_matches(const struct live_row *row, const char *text) {
    const struct process *process = &row->process->process;
    if (contains(text_count(words_pid(process)).s, text) || contains(row->process->command, text)) return true;
    if (contains(row->process->ended_ns != 0 ? "ended" : words_mark(process).s, text)) return true;
    if (process->segment == NULL) return contains(process->why, text);
    return row->has_device && contains(words_uuid(row->sum.identity).s, text);
}

static int compare_numbers(uint64_t a, uint64_t b) {
    return a < b ? -1 : a > b;
}

/* Unknown is less than anything. */
static int compare_ratios(double a, double b) {
    if (isnan(a) || isnan(b)) return isnan(b) - isnan(a);
    return a < b ? -1 : a > b;
}

static int compare(const struct live_row *a, const struct live_row *b, enum live_sort sort) {
    switch (sort) {
    case LIVE_SORT_COMMAND:
        return strcmp(a->process->command, b->process->command);
    case LIVE_SORT_DEVICE:
        return a->sum.device < b->sum.device ? -1 : a->sum.device > b->sum.device;
    case LIVE_SORT_LIVE:
        return compare_numbers(a->sum.measures.live_bytes, b->sum.measures.live_bytes);
    case LIVE_SORT_CACHED:
        return compare_numbers(a->sum.measures.cached_bytes, b->sum.measures.cached_bytes);
    case LIVE_SORT_RESERVED:
        return compare_numbers(a->sum.figures.reserved_bytes, b->sum.figures.reserved_bytes);
    case LIVE_SORT_PEAK:
        return compare_numbers(a->sum.figures.peak_reserved_bytes, b->sum.figures.peak_reserved_bytes);
    case LIVE_SORT_HITS:
        return compare_ratios(a->sum.measures.hit_rate, b->sum.measures.hit_rate);
    case LIVE_SORT_RATE:
        return compare_ratios(a->alloc_rate, b->alloc_rate);
    case LIVE_SORT_FRAGMENTATION:
        return compare_ratios(a->sum.measures.external_fragmentation, b->sum.measures.external_fragmentation);
    case LIVE_SORT_PID:
    case LIVE_SORT_COUNT:
        break;
    }
    return compare_numbers(words_pid(&a->process->process), words_pid(&b->process->process));
}

const char *live_sort_title(enum live_sort sort) {
#define TITLE(name, title) title,
    static const char *const titles[] = {LIVE_SORTS(TITLE)};
#undef TITLE
    return titles[sort];
}

bool live_sort_rises(const struct live_model *model) {
    const bool is_identity =
        model->sort == LIVE_SORT_PID || model->sort == LIVE_SORT_DEVICE || model->sort == LIVE_SORT_COMMAND;
    return is_identity != model->inverted;
}

static int in_order(const void *one, const void *other, void *context) {
    const struct live_row *a = *(struct live_row *const *)one, *b = *(struct live_row *const *)other;
    const struct live_model *model = context;
    const bool has_figures = a->process->process.segment != NULL;
    /* Those without figures stand at the end, whatever the order. */
    if (has_figures != (b->process->process.segment != NULL)) return has_figures ? -1 : 1;
    const int order = compare(a, b, model->sort);
    if (order != 0) return live_sort_rises(model) ? order : -order;
    const int by_pid = compare(a, b, LIVE_SORT_PID);
    return by_pid != 0 ? by_pid : compare_numbers(a->id, b->id);
}

static void arrange(struct live_model *model) {
    size_t count = 0;
    for (size_t i = 0; i < model->process_count; i++) count += model->processes[i]->row_count;
    model->shown = memory_grow(model->shown, count + 1, sizeof(struct live_row *));
    model->shown_count = 0;
    for (size_t i = 0; i < model->process_count; i++)
        for (size_t j = 0; j < model->processes[i]->row_count; j++) {
            struct live_row *row = model->processes[i]->rows[j];
            if (model->filter == NULL || live_row_matches(row, model->filter)) model->shown[model->shown_count++] = row;
        }
    qsort_r(model->shown, model->shown_count, sizeof(*model->shown), in_order, model);
}

/* ---- */

void live_model_start(struct live_model *model) {
    *model = (struct live_model){.sort = LIVE_SORT_LIVE};
}

void live_model_free(struct live_model *model) {
    for (size_t i = 0; i < model->process_count; i++) free_process(model->processes[i]);
    free(model->processes);
    free(model->shown);
    free(model->filter);
    *model = (struct live_model){0};
}

static bool is_of_interest(const struct process *process, bool ended_too) {
    if (process->liveness == LIVENESS_ALIVE) return process->code != CODE_DENIED;
    return ended_too && process->segment != NULL;
}

/* A process that has ended keeps its last copy. */
static void note_ends(struct live_model *model, bool ended_too) {
    size_t kept = 0;
    for (size_t i = 0; i < model->process_count; i++) {
        struct live_process *process = model->processes[i];
        if (!process->seen) process->process.liveness = LIVENESS_ENDED;
        if (!process->seen && process->ended_ns == 0) process->ended_ns = model->updated_ns;
        const bool is_over = process->ended_ns != 0 && model->updated_ns - process->ended_ns >= LIVE_ENDED_SHOWN_NS;
        if (is_over && !(ended_too && process->seen))
            free_process(process);
        else
            model->processes[kept++] = process;
    }
    model->process_count = kept;
}

void live_model_update(struct live_model *model, struct collection *collection, uint64_t now_ns, bool ended_too) {
    model->updated_ns = now_ns;
    model->denied = model->unseen = 0;
    for (size_t i = 0; i < model->process_count; i++) model->processes[i]->seen = false;
    for (size_t i = 0; i < collection->count; i++) {
        struct process *collected = &collection->processes[i];
        model->denied += collected->liveness == LIVENESS_ALIVE && collected->code == CODE_DENIED;
        model->unseen += collected->liveness == LIVENESS_UNSEEN && !ended_too;
        if (!is_of_interest(collected, ended_too)) continue;
        struct live_process *process = find_process(model, &collected->file);
        if (process == NULL) process = add_process(model);
        take_process(process, collected);
        process->seen = true;
        if (process->process.liveness != LIVENESS_ENDED)
            process->ended_ns = 0;
        else if (process->ended_ns == 0)
            process->ended_ns = now_ns;
        update_rows(model, process);
    }
    collect_free(collection);
    note_ends(model, ended_too);
    arrange(model);
}

void live_model_sort(struct live_model *model, enum live_sort sort, bool inverted) {
    model->sort = sort;
    model->inverted = inverted;
    arrange(model);
}

void live_model_filter(struct live_model *model, const char *text) {
    char *filter = text == NULL || text[0] == '\0' ? NULL : memory_copy(text);
    free(model->filter);
    model->filter = filter;
    arrange(model);
}

static void begin_to_count(struct live_process *process, bool from_here) {
    const struct segment *copy = process->process.segment;
    since_free(process->since);
    since_free(process->then);
    process->then = from_here && copy != NULL ? since_note(copy) : NULL;
    process->since = process->then != NULL ? since_make(copy, process->then) : NULL;
    recount(process);
}

void live_model_count_from_here(struct live_model *model) {
    model->counting_since_ns = model->updated_ns;
    for (size_t i = 0; i < model->process_count; i++) begin_to_count(model->processes[i], true);
    arrange(model);
}

void live_model_count_all(struct live_model *model) {
    model->counting_since_ns = 0;
    for (size_t i = 0; i < model->process_count; i++) begin_to_count(model->processes[i], false);
    arrange(model);
}
