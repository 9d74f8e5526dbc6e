/* SPDX-License-Identifier: MIT
 *
 * The list: a bar for each device, then a row for each process and device with its figures, its part of the device's
 * memory and how its live memory went.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "choose.h"
#include "live_view.h"
#include "memory.h"
#include "text.h"
#include "words.h"

#define MARK_COLUMNS 2u  /* in front of each row: which one is selected */
#define COMMAND_LEAST 7u /* columns */
#define COMMAND_MOST 40u /* columns */
#define BAR_LEAST 8u     /* columns */
#define HISTORY_LEAST 6u /* columns */
#define METER_NAME 12u   /* columns */
#define METER_WIDE 120u  /* width from which a device's line says all */
#define METERS_MOST 8u

/* The columns, in the order of enum live_sort, by which each can be sorted. */
static const struct {
    size_t least_width; /* columns; one that has no width yet takes what is left */
    size_t from;        /* width of the terminal from which it is shown */
    bool right;
} columns[LIVE_SORT_COUNT] = {
    [LIVE_SORT_PID] = {7, 0, true},      [LIVE_SORT_DEVICE] = {3, 60, true},
    [LIVE_SORT_COMMAND] = {0, 0, false}, [LIVE_SORT_LIVE] = {9, 0, true},
    [LIVE_SORT_CACHED] = {8, 60, true},  [LIVE_SORT_RESERVED] = {8, 50, true},
    [LIVE_SORT_PEAK] = {8, 110, true},   [LIVE_SORT_HITS] = {6, 72, true},
    [LIVE_SORT_RATE] = {8, 100, true},   [LIVE_SORT_FRAGMENTATION] = {8, 130, true},
};

/* Where what stands; a width of 0 is not there. */
struct layout {
    size_t at[LIVE_SORT_COUNT], width[LIVE_SORT_COUNT];
    size_t bar, bar_width, history, history_width;
};

static struct text rate_text(double rate) {
    struct text text = {"-"};
    if (!isnan(rate)) snprintf(text.s, sizeof(text.s), rate < 99.95 ? "%.1f" : "%.0f", rate);
    return text;
}

static uint64_t figure(const struct live_row *row, uint64_t value) {
    return row->has_device ? value : TEXT_UNKNOWN;
}

/* Of any column but that of commands. */
static struct text cell_text(const struct live_row *row, enum live_sort column) {
    const struct device_sum *sum = &row->sum;
    const bool knows = row->has_device;
    struct text text = {""};
    switch (column) {
    case LIVE_SORT_PID:
        return text_count(words_pid(&row->process->process));
    case LIVE_SORT_DEVICE:
        return text_count(!knows || sum->device < 0 ? TEXT_UNKNOWN : (uint64_t)sum->device);
    case LIVE_SORT_LIVE:
        snprintf(text.s, sizeof(text.s), "%s%.40s", sum->approximate ? "~" : "",
                 text_bytes(figure(row, sum->measures.live_bytes)).s);
        return text;
    case LIVE_SORT_CACHED:
        return text_bytes(figure(row, sum->measures.cached_bytes));
    case LIVE_SORT_RESERVED:
        return text_bytes(figure(row, sum->figures.reserved_bytes));
    case LIVE_SORT_PEAK:
        return text_bytes(figure(row, sum->figures.peak_reserved_bytes));
    case LIVE_SORT_HITS:
        return text_ratio(knows ? sum->measures.hit_rate : NAN);
    case LIVE_SORT_RATE:
        return rate_text(row->alloc_rate);
    case LIVE_SORT_FRAGMENTATION:
        return text_ratio(knows ? sum->measures.external_fragmentation : NAN);
    case LIVE_SORT_COMMAND:
    case LIVE_SORT_COUNT:
        break;
    }
    return text;
}

static void widen(size_t *width, size_t needed) {
    if (*width < needed) *width = needed;
}

static void measure_columns(const struct live *live, size_t width, struct layout *layout) {
    const struct live_model *model = &live->model;
    for (unsigned i = 0; i < LIVE_SORT_COUNT; i++) {
        if (width < columns[i].from || i == LIVE_SORT_COMMAND) continue;
        layout->width[i] = columns[i].least_width;
        widen(&layout->width[i], strlen(live_sort_title((enum live_sort)i)) + (i == model->sort));
        for (size_t row = 0; row < model->shown_count; row++)
            if (model->shown[row]->process->process.segment != NULL)
                widen(&layout->width[i], strlen(cell_text(model->shown[row], (enum live_sort)i).s));
    }
}

static size_t longest_command(const struct live_model *model) {
    size_t longest = strlen(live_sort_title(LIVE_SORT_COMMAND)) + 1;
    for (size_t i = 0; i < model->shown_count; i++) widen(&longest, text_width(model->shown[i]->process->command));
    return longest < COMMAND_MOST ? longest : COMMAND_MOST;
}

/* The command takes what it needs, as long as it leaves three fifths to the pictures. */
static void share_rest(const struct live *live, size_t rest, struct layout *layout) {
    const size_t pictures = BAR_LEAST + 1 + HISTORY_LEAST + 1, longest = longest_command(&live->model);
    size_t command = longest;
    if (rest < COMMAND_LEAST + pictures) {
        layout->width[LIVE_SORT_COMMAND] = rest;
        return;
    }
    if (command > rest - pictures) command = rest - pictures;
    const size_t fair = rest * 2 / 5 > COMMAND_LEAST ? rest * 2 / 5 : COMMAND_LEAST;
    if (command > fair) command = fair;
    layout->width[LIVE_SORT_COMMAND] = command;
    rest -= command;
    layout->bar_width = (rest - 2) * 3 / 7;
    widen(&layout->bar_width, BAR_LEAST);
    layout->history_width = rest - 2 - layout->bar_width;
    if (layout->history_width > LIVE_HISTORY) layout->history_width = LIVE_HISTORY;
}

static struct layout lay_out(const struct live *live, size_t width) {
    struct layout layout = {0};
    size_t at = MARK_COLUMNS, used = MARK_COLUMNS;
    measure_columns(live, width, &layout);
    for (unsigned i = 0; i < LIVE_SORT_COUNT; i++)
        if (layout.width[i] != 0) used += layout.width[i] + 1;
    share_rest(live, used < width ? width - used : 0, &layout);
    for (unsigned i = 0; i < LIVE_SORT_COUNT; i++) {
        layout.at[i] = at;
        if (layout.width[i] != 0) at += layout.width[i] + 1;
    }
    layout.bar = at;
    layout.history = at + layout.bar_width + 1;
    return layout;
}

static void draw_titles(const struct live *live, struct canvas *canvas, size_t row, const struct layout *layout) {
    const struct live_model *model = &live->model;
    for (unsigned i = 0; i < LIVE_SORT_COUNT; i++) {
        const bool is_sorted = i == model->sort;
        char *title = memory_format("%s%s", live_sort_title((enum live_sort)i),
                                    !is_sorted               ? ""
                                    : live_sort_rises(model) ? live->marks->ascending
                                                             : live->marks->descending);
        const enum live_style style = is_sorted ? STYLE_SORTED : STYLE_TITLE;
        if (columns[i].right)
            canvas_put_right(canvas, row, layout->at[i], layout->width[i], style, title);
        else
            canvas_put(canvas, row, layout->at[i], layout->width[i], style, title);
        free(title);
    }
    canvas_put(canvas, row, layout->bar, layout->bar_width, STYLE_TITLE, "OF GPU");
    canvas_put(canvas, row, layout->history, layout->history_width, STYLE_TITLE, "HISTORY");
}

/* What fills a bar: the device, or where its size is unknown, the most that any row has had. */
static uint64_t whole_of(const struct live_model *model, const struct live_row *row) {
    uint64_t most = row->sum.identity->device_total_bytes;
    if (most != 0) return most;
    for (size_t i = 0; i < model->shown_count; i++)
        if (model->shown[i]->sum.figures.peak_reserved_bytes > most)
            most = model->shown[i]->sum.figures.peak_reserved_bytes;
    return most;
}

static void draw_pictures(const struct live *live, struct canvas *canvas, size_t at, const struct layout *layout,
                          const struct live_row *row) {
    const struct draw_memory memory = {row->sum.measures.live_bytes, row->sum.measures.cached_bytes,
                                       row->sum.figures.reserved_bytes, whole_of(&live->model, row)};
    double values[LIVE_HISTORY];
    size_t count = live_history_values(&row->history, LIVE_FIGURE_RESERVED, values, layout->history_width);
    const double most = draw_largest(values, count);
    count = live_history_values(&row->history, LIVE_FIGURE_LIVE, values, layout->history_width);
    draw_bar(canvas, live->marks, at, layout->bar, layout->bar_width, &memory);
    draw_history(canvas, live->marks, at, 1, layout->history, layout->history_width, STYLE_HISTORY, values, count,
                 most);
}

/* Why there are no figures, behind the pid. */
static void draw_problem(struct canvas *canvas, size_t at, const struct layout *layout, const struct live_row *row) {
    const size_t from = layout->at[LIVE_SORT_PID] + layout->width[LIVE_SORT_PID] + 1;
    char *text = memory_format("the segment %s", row->process->process.why);
    canvas_put_right(canvas, at, layout->at[LIVE_SORT_PID], layout->width[LIVE_SORT_PID], STYLE_ALARM,
                     cell_text(row, LIVE_SORT_PID).s);
    canvas_put(canvas, at, from, SIZE_MAX, STYLE_ALARM, text);
    free(text);
}

static void draw_row(const struct live *live, struct canvas *canvas, size_t at, const struct layout *layout,
                     const struct live_row *row, bool selected) {
    const struct live_process *process = row->process;
    const struct text mark = live_mark(live, process);
    const bool is_marked = mark.s[0] != '\0', is_over = process->process.liveness != LIVENESS_ALIVE;
    const enum live_style style = selected ? STYLE_SELECTED : is_over ? STYLE_DIM : STYLE_PLAIN;
    if (selected) canvas_put(canvas, at, 0, 1, STYLE_KEY, live->marks->selected);
    if (process->process.segment == NULL) {
        draw_problem(canvas, at, layout, row);
        return;
    }
    if (selected) canvas_style(canvas, at, MARK_COLUMNS, layout->bar - MARK_COLUMNS - 1, STYLE_SELECTED);
    for (unsigned i = 0; i < LIVE_SORT_COUNT; i++) {
        if (i != LIVE_SORT_COMMAND)
            canvas_put_right(canvas, at, layout->at[i], layout->width[i], style, cell_text(row, (enum live_sort)i).s);
        else
            canvas_put(canvas, at, layout->at[i], layout->width[i], style,
                       is_marked && layout->bar_width == 0 ? mark.s : process->command);
    }
    if (is_marked)
        canvas_put(canvas, at, layout->bar, layout->bar_width + 1 + layout->history_width,
                   is_over ? STYLE_WARNING : STYLE_ALARM, layout->bar_width == 0 ? "" : mark.s);
    else if (row->has_device)
        draw_pictures(live, canvas, at, layout, row);
}

/* ---- devices ---- */

struct meter {
    const struct poolcuda_pool *identity;
    struct draw_memory memory;
    uint64_t peak;
};

static bool is_same_device(const struct poolcuda_pool *a, const struct poolcuda_pool *b) {
    static const uint8_t unknown[sizeof(a->uuid)];
    if (memcmp(a->uuid, unknown, sizeof(unknown)) == 0 || memcmp(b->uuid, unknown, sizeof(unknown)) == 0)
        return a->device == b->device;
    return memcmp(a->uuid, b->uuid, sizeof(a->uuid)) == 0;
}

static void add(uint64_t *to, uint64_t value) {
    if (__builtin_add_overflow(*to, value, to)) *to = UINT64_MAX;
}

static void add_to_meters(struct meter *meters, size_t *count, const struct device_sum *sum) {
    size_t i = 0;
    while (i < *count && !is_same_device(meters[i].identity, sum->identity)) i++;
    if (i == METERS_MOST) return;
    if (i == *count) meters[(*count)++] = (struct meter){.identity = sum->identity};
    add(&meters[i].memory.live, sum->measures.live_bytes);
    add(&meters[i].memory.cached, sum->measures.cached_bytes);
    add(&meters[i].memory.reserved, sum->figures.reserved_bytes);
    add(&meters[i].peak, sum->figures.peak_reserved_bytes);
    if (meters[i].memory.total < sum->identity->device_total_bytes)
        meters[i].memory.total = sum->identity->device_total_bytes;
}

static int by_device(const void *a, const void *b) {
    const struct poolcuda_pool *left = ((const struct meter *)a)->identity,
                               *right = ((const struct meter *)b)->identity;
    const int order = strncmp(left->pci, right->pci, sizeof(left->pci));
    return order != 0 ? order : left->device < right->device ? -1 : left->device > right->device;
}

/* All processes that run, also those that a filter hides. */
static size_t make_meters(const struct live_model *model, struct meter meters[METERS_MOST]) {
    size_t count = 0;
    for (size_t i = 0; i < model->process_count; i++) {
        const struct live_process *process = model->processes[i];
        for (size_t j = 0; process->ended_ns == 0 && j < process->row_count; j++)
            if (process->rows[j]->has_device) add_to_meters(meters, &count, &process->rows[j]->sum);
    }
    qsort(meters, count, sizeof(*meters), by_device);
    return count;
}

static char *meter_name(const struct poolcuda_pool *identity) {
    if (identity->pci[0] == '\0')
        return memory_format("GPU %s", text_count(identity->device < 0 ? TEXT_UNKNOWN : (uint64_t)identity->device).s);
    char *safe = text_safe(identity->pci, sizeof(identity->pci));
    const char *colon = strchr(safe, ':'); /* behind the domain, which is 0 nearly everywhere */
    char *name = memory_format("GPU %s", strncmp(safe, "0000:", 5) == 0 && colon != NULL ? colon + 1 : safe);
    free(safe);
    return name;
}

static char *meter_text(const struct meter *meter, bool wide) {
    char *reserved = wide ? memory_format("  reserved %s", text_bytes(meter->memory.reserved).s) : memory_copy("");
    char *total =
        meter->memory.total == 0 ? memory_copy("") : memory_format("  of %s", text_bytes(meter->memory.total).s);
    char *text = memory_format("live %s  cached %s%s%s", text_bytes(meter->memory.live).s,
                               text_bytes(meter->memory.cached).s, reserved, total);
    free(reserved);
    free(total);
    return text;
}

/* One below the other: their bars are of one length. */
static void draw_meters(const struct live *live, struct canvas *canvas, size_t row, const struct meter *meters,
                        size_t count) {
    const size_t left = canvas->width - METER_NAME - 2;
    char *texts[METERS_MOST];
    size_t longest = 0;
    for (size_t i = 0; i < count; i++) {
        texts[i] = meter_text(&meters[i], canvas->width >= METER_WIDE);
        widen(&longest, text_width(texts[i]));
    }
    for (size_t i = 0; i < count; i++) {
        struct draw_memory memory = meters[i].memory;
        char *name = meter_name(meters[i].identity);
        if (memory.total == 0) memory.total = meters[i].peak;
        canvas_put(canvas, row + i, 1, METER_NAME - 1, STYLE_TITLE, name);
        if (left > longest + 1 + BAR_LEAST)
            draw_bar(canvas, live->marks, row + i, METER_NAME + 1, left - longest - 1, &memory);
        canvas_put_right(canvas, row + i, METER_NAME + 1, left, STYLE_PLAIN, texts[i]);
        free(name);
        free(texts[i]);
    }
}

/* ---- */

/* Why the list is empty. */
static char *explain(const struct live *live) {
    const struct live_model *model = &live->model;
    if (model->filter != NULL && model->process_count != 0)
        return memory_format("no process has '%s' (Esc: all of them)", model->filter);
    if (choose_is_narrowed(&live->options->choice)) return memory_copy("no process on the pool is one of those chosen");
    return memory_copy("no process runs on the pool; start one with: poolstat run -- COMMAND");
}

static char *explain_hidden(const struct live_model *model) {
    char *denied = memory_format("%zu process%s of other users: run poolstat as that user, or as root", model->denied,
                                 model->denied == 1 ? "" : "es");
    char *unseen = memory_format("%zu segment%s of pid namespaces that cannot be seen from here", model->unseen,
                                 model->unseen == 1 ? "" : "s");
    char *text = memory_format("not shown: %s%s%s", model->denied == 0 ? "" : denied,
                               model->denied == 0 || model->unseen == 0 ? "" : "; ", model->unseen == 0 ? "" : unseen);
    free(denied);
    free(unseen);
    return text;
}

static void draw_rows(struct live *live, struct canvas *canvas, size_t at, size_t rows) {
    const struct live_model *model = &live->model;
    const struct layout layout = lay_out(live, canvas->width);
    draw_titles(live, canvas, at, &layout);
    live->page_rows = rows;
    if (live->top > live->selected) live->top = live->selected;
    if (live->selected >= live->top + rows) live->top = live->selected - rows + 1;
    if (live->top + rows > model->shown_count) live->top = model->shown_count > rows ? model->shown_count - rows : 0;
    for (size_t i = 0; i < rows && live->top + i < model->shown_count; i++)
        draw_row(live, canvas, at + 1 + i, &layout, model->shown[live->top + i], live->top + i == live->selected);
}

void live_list_draw(struct live *live, struct canvas *canvas) {
    const struct live_model *model = &live->model;
    struct meter meters[METERS_MOST];
    const size_t end = canvas->height - 1;
    size_t count = make_meters(model, meters), row = 1;
    if (count > canvas->height / 4) count = canvas->height / 4;
    draw_meters(live, canvas, row, meters, count);
    row += count;
    if (model->denied + model->unseen != 0) {
        char *text = explain_hidden(model);
        canvas_put(canvas, row++, 1, SIZE_MAX, STYLE_WARNING, text);
        free(text);
    }
    if (row > 1 && canvas->height >= 16) row++;
    if (model->shown_count != 0) {
        draw_rows(live, canvas, row, end - row - 1);
        return;
    }
    char *text = explain(live);
    canvas_put(canvas, row, 1, SIZE_MAX, STYLE_PLAIN, text);
    free(text);
}
