/* SPDX-License-Identifier: MIT
 *
 * Pools, size classes, streams, events: tables are laid out as everywhere (grid.h), pictures by live_draw.h.
 */
#include "live_sections.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grid.h"
#include "memory.h"
#include "text.h"
#include "words.h"

#define LABEL_COLUMNS 22u     /* in front of a history */
#define HEAT_LABEL_COLUMNS 8u /* in front of a row of heat, and behind it */
#define CLASSES_LEAST 28u     /* shown, up to 64 GiB, also where there are no such blocks */
#define CLASSES_LABELLED 5u   /* one label for so many */

void part_title(const struct live_part *part, const char *title) {
    if (part->page->height != 0) canvas_add_row(part->page);
    const size_t row = canvas_add_row(part->page);
    const size_t used = canvas_put(part->page, row, 0, SIZE_MAX, STYLE_TITLE, title);
    if (used + 2 < part->page->width)
        canvas_fill(part->page, row, used + 1, part->page->width - used - 2, STYLE_DIM, part->live->marks->rule);
}

static void add_text(const struct live_part *part, enum live_style style, const char *text) {
    canvas_put(part->page, canvas_add_row(part->page), 1, SIZE_MAX, style, text);
}

/* `styles`: of the rows; NULL: all are plain. The grid is given back. */
static void add_grid(const struct live_part *part, struct grid *grid, const enum live_style *styles, bool titles) {
    char *text = NULL, *rest;
    size_t size = 0, row = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) return;
    grid_print(grid, out, 0, part->page->width - 1, titles);
    fclose(out);
    rest = text;
    for (const char *line; (line = strsep(&rest, "\n")) != NULL && rest != NULL; row++) {
        const bool is_title = titles && row == 0;
        add_text(part, is_title ? STYLE_DIM : styles != NULL ? styles[row - titles] : STYLE_PLAIN, line);
    }
    free(text);
}

/* ---- histories ---- */

static struct text value_text(enum live_figure figure, double value) {
    struct text text = {"-"};
    if (isnan(value)) return text;
    if (figure != LIVE_FIGURE_RATE) return text_bytes((uint64_t)value);
    snprintf(text.s, sizeof(text.s), value < 99.95 ? "%.1f/s" : "%.0f/s", value);
    return text;
}

/* All that is reserved, lately: what fills the height of every history of memory, so that they can be compared. */
static double most_reserved(const struct live_row *row, size_t columns) {
    double values[LIVE_HISTORY];
    return draw_largest(values, live_history_values(&row->history, LIVE_FIGURE_RESERVED, values,
                                                    columns < LIVE_HISTORY ? columns : LIVE_HISTORY));
}

static void add_history(const struct live_part *part, const struct live_row *row, enum live_figure figure,
                        const char *name, enum live_style style, size_t rows) {
    double values[LIVE_HISTORY];
    struct canvas *page = part->page;
    const size_t columns = page->width > LABEL_COLUMNS + 1 ? page->width - LABEL_COLUMNS - 1 : 0;
    const size_t count =
        live_history_values(&row->history, figure, values, columns < LIVE_HISTORY ? columns : LIVE_HISTORY);
    bool is_known = false;
    for (size_t i = 0; i < count; i++) is_known |= !isnan(values[i]);
    if (rows > 1 && figure != LIVE_FIGURE_LIVE) canvas_add_row(page); /* between two that fill their height */
    const size_t first = canvas_add_row(page);
    for (size_t i = 1; i < rows; i++) canvas_add_row(page);
    canvas_put(page, first, 1, SIZE_MAX, STYLE_PLAIN, name);
    canvas_put_right(page, first, 10, LABEL_COLUMNS - 11, style,
                     value_text(figure, count == 0 ? NAN : values[count - 1]).s);
    if (rows > 1) {
        canvas_put(page, first + 1, 1, SIZE_MAX, STYLE_DIM, "  most");
        canvas_put_right(page, first + 1, 10, LABEL_COLUMNS - 11, STYLE_DIM,
                         value_text(figure, is_known ? draw_largest(values, count) : NAN).s);
    }
    draw_history(page, part->live->marks, first, rows, LABEL_COLUMNS, columns, style, values, count,
                 figure == LIVE_FIGURE_RATE ? 0 : most_reserved(row, columns));
}

static const struct live_row *row_of(const struct live_part *part) {
    for (size_t i = 0; part->pool != NULL && i < part->process->row_count; i++)
        if (part->process->rows[i]->has_device && part->process->rows[i]->sum.device == part->pool->record.device)
            return part->process->rows[i];
    return NULL;
}

void part_histories(const struct live_part *part, size_t rows_each) {
    const struct live_row *row = row_of(part);
    if (row == NULL) return;
    char *title = memory_format("GPU %s, one column every %.3g s",
                                text_count(row->sum.device < 0 ? TEXT_UNKNOWN : (uint64_t)row->sum.device).s,
                                (double)part->live->delay_ns / 1e9);
    part_title(part, title);
    add_history(part, row, LIVE_FIGURE_LIVE, "live", STYLE_LIVE, rows_each);
    add_history(part, row, LIVE_FIGURE_CACHED, "cached", STYLE_CACHED, rows_each);
    add_history(part, row, LIVE_FIGURE_RESERVED, "reserved", STYLE_RESERVED, rows_each);
    add_history(part, row, LIVE_FIGURE_RATE, "allocs", STYLE_HISTORY, rows_each);
    free(title);
}

/* ---- pools ---- */

static void put_pool(struct grid *grid, const struct segment_pool *pool, const char *mark) {
    struct poolcuda_pool figures;
    struct counters counters;
    struct measures measures;
    const char *kind = words_kind(&pool->record);
    derive_figures(pool, &figures);
    derive_counters(pool, &counters);
    derive_measures(&figures, &counters, &measures);
    char *number = memory_format("%s%u%s", mark, pool->number, pool->approximate ? "~" : "");
    grid_put(grid, number);
    free(number);
    grid_put(grid, text_count(pool->record.device < 0 ? TEXT_UNKNOWN : (uint64_t)pool->record.device).s);
    grid_put(grid, kind == NULL ? "unknown" : kind);
    grid_put(grid, text_bytes(measures.live_bytes).s);
    grid_put(grid, text_bytes(measures.cached_bytes).s);
    grid_put(grid, text_bytes(figures.reserved_bytes).s);
    grid_put(grid, text_ratio(measures.hit_rate).s);
    grid_put(grid, text_count(figures.segments).s);
    grid_put(grid, text_bytes(figures.peak_reserved_bytes).s);
    grid_put(grid, text_ratio(measures.external_fragmentation).s);
    grid_put(grid, text_bytes(figures.idle_bytes).s);
    grid_put(grid, text_bytes(figures.ordered_bytes).s);
    grid_put(grid, text_bytes(figures.waiting_bytes).s);
}

static void add_columns(struct grid *grid, const char *const *titles, size_t count, unsigned left) {
    for (size_t i = 0; i < count; i++) grid_column(grid, titles[i], left >> i & 1 ? GRID_LEFT : GRID_RIGHT);
}

void part_pools(const struct live_part *part) {
    static const char *const titles[] = {"POOL", "GPU",  "KIND",    "LIVE", "CACHED",  "RESERVED", "HITS",
                                         "SEGS", "PEAK", "EXTFRAG", "IDLE", "ORDERED", "WAITING"};
    const struct segment *segment = part->segment;
    enum live_style *styles = memory_new(segment->pool_count, sizeof(*styles));
    struct grid grid = {0};
    add_columns(&grid, titles, sizeof(titles) / sizeof(titles[0]), 1u << 2);
    for (size_t i = 0; i < segment->pool_count; i++) {
        const bool is_chosen = &segment->pools[i] == part->pool;
        put_pool(&grid, &segment->pools[i], is_chosen ? part->live->marks->selected : "");
        styles[i] = is_chosen ? STYLE_SELECTED : STYLE_PLAIN;
    }
    part_title(part, segment->pool_count == 0 ? "No pool is open" : "Pools");
    if (segment->pool_count != 0) add_grid(part, &grid, styles, true);
    free(styles);
}

/* ---- size classes ---- */

struct classes {
    uint64_t live[POOLCUDA_SIZE_CLASSES], cached[POOLCUDA_SIZE_CLASSES], allocs[POOLCUDA_SIZE_CLASSES],
        misses[POOLCUDA_SIZE_CLASSES];
    size_t count; /* of those that are shown */
};

static void sum_classes(const struct segment_pool *pool, struct classes *classes) {
    *classes = (struct classes){.count = CLASSES_LEAST};
    for (unsigned i = 0; i < POOLCUDA_SIZE_CLASSES; i++) {
        struct class_sum sum;
        if (!derive_class(pool, i, &sum)) continue;
        classes->live[i] = sum.live_bytes;
        classes->cached[i] = sum.cached_bytes;
        classes->allocs[i] = sum.allocs;
        classes->misses[i] = derive_difference(sum.allocs, sum.hits);
        if (i >= classes->count) classes->count = i + 1;
    }
}

static uint64_t most_of(const uint64_t *values) {
    uint64_t most = 0;
    for (unsigned i = 0; i < POOLCUDA_SIZE_CLASSES; i++)
        if (values[i] > most) most = values[i];
    return most;
}

static void add_heat(const struct live_part *part, const char *name, const uint64_t *values, size_t count,
                     size_t columns, struct text (*text)(uint64_t value)) {
    const size_t row = canvas_add_row(part->page), end = HEAT_LABEL_COLUMNS + count * columns;
    canvas_put(part->page, row, 1, HEAT_LABEL_COLUMNS - 1, STYLE_PLAIN, name);
    draw_heat(part->page, part->live->marks, row, HEAT_LABEL_COLUMNS, columns, values, count);
    canvas_put(part->page, row, end + 1, SIZE_MAX, STYLE_DIM, text(most_of(values)).s);
}

/* The largest size of each few classes: "512", "16K", "512K". */
static void add_scale(const struct live_part *part, size_t count, size_t columns) {
    const size_t row = canvas_add_row(part->page);
    for (unsigned i = 0; i < count && i + 1 < POOLCUDA_SIZE_CLASSES; i += CLASSES_LABELLED) {
        const unsigned power = 9 + i;
        char *label = memory_format("%u%.1s", 1u << power % 10, &"BKMGTP"[power / 10]);
        canvas_put(part->page, row, HEAT_LABEL_COLUMNS + i * columns, CLASSES_LABELLED * columns - 1, STYLE_DIM, label);
        free(label);
    }
}

void part_classes(const struct live_part *part) {
    struct classes classes;
    if (part->pool == NULL) return;
    sum_classes(part->pool, &classes);
    const size_t room = part->page->width - 2 * HEAT_LABEL_COLUMNS - 2;
    const size_t columns = room / classes.count > 3 ? 3 : room / classes.count > 1 ? room / classes.count : 1;
    char *title =
        memory_format("Size classes of pool %u, up to (a shade darker: 16 times as much)", part->pool->number);
    part_title(part, title);
    add_scale(part, classes.count, columns);
    add_heat(part, "live", classes.live, classes.count, columns, text_bytes);
    add_heat(part, "cached", classes.cached, classes.count, columns, text_bytes);
    add_heat(part, "allocs", classes.allocs, classes.count, columns, text_count);
    add_heat(part, "misses", classes.misses, classes.count, columns, text_count);
    free(title);
}

/* ---- streams ---- */

void part_streams(const struct live_part *part) {
    static const char *const titles[] = {"STREAM", "LIVE", "REQUESTED", "ALLOCS", "HITS", "FREES"};
    struct grid grid = {0};
    struct stream_sum *sums;
    if (part->pool == NULL) return;
    const size_t count = derive_streams(part->pool, &sums);
    add_columns(&grid, titles, sizeof(titles) / sizeof(titles[0]), 1u << 0);
    for (size_t i = 0; i < count; i++) {
        const struct counters *all = &sums[i].counters;
        if (all->alloc_live_bytes == 0 && all->allocs == 0)
            continue; /* one that only freed what others had allocated */
        grid_put(&grid, words_stream(sums[i].stream).s);
        grid_put(&grid, text_bytes(derive_difference(all->alloc_live_bytes, all->freed_live_bytes)).s);
        grid_put(&grid, text_bytes(derive_difference(all->alloc_requested_bytes, all->freed_requested_bytes)).s);
        grid_put(&grid, text_count(all->allocs).s);
        grid_put(&grid, text_ratio(derive_ratio(all->hits, all->allocs)).s);
        grid_put(&grid, text_count(all->frees).s);
    }
    free(sums);
    char *title = memory_format("Streams of pool %u, by where blocks were allocated", part->pool->number);
    part_title(part, title);
    add_grid(part, &grid, NULL, true);
    free(title);
}

/* ---- figures ---- */

static void put_figure(struct grid *grid, const char *name, struct text value) {
    char *label = text_label(name);
    grid_put(grid, label);
    grid_put(grid, value.s);
    free(label);
}

void part_figures(const struct live_part *part) {
    struct poolcuda_pool figures;
    struct counters counters;
    struct measures measures;
    struct grid grid = {0};
    if (part->pool == NULL) return;
    derive_figures(part->pool, &figures);
    derive_counters(part->pool, &counters);
    derive_measures(&figures, &counters, &measures);
    for (size_t i = 0; i < 6; i++) grid_column(&grid, "", i % 2 == 0 ? GRID_LEFT : GRID_RIGHT);
    put_figure(&grid, "utilisation", text_ratio(measures.utilisation));
    put_figure(&grid, "allocs", text_count(counters.allocs));
    put_figure(&grid, "growths", text_count(figures.growths));
    put_figure(&grid, "internal_fragmentation", text_ratio(measures.internal_fragmentation));
    put_figure(&grid, "misses", text_count(counters.misses));
    put_figure(&grid, "trims", text_count(figures.trims));
    put_figure(&grid, "peak_live_bytes", text_bytes(figures.peak_live_bytes));
    put_figure(&grid, "waits", text_count(figures.waits));
    put_figure(&grid, "oom_retries", text_count(figures.oom_retries));
    put_figure(&grid, "stranded_bytes", text_bytes(measures.stranded_bytes));
    put_figure(&grid, "fences", text_count(figures.fences));
    put_figure(&grid, "oom_failures", text_count(figures.oom_failures));
    put_figure(&grid, "largest_free_bytes", text_bytes(figures.largest_free_bytes));
    put_figure(&grid, "driver_ns", text_duration(figures.driver_ns));
    put_figure(&grid, "bad_frees", text_count(figures.bad_frees));
    char *title = memory_format("Figures of pool %u", part->pool->number);
    part_title(part, title);
    add_grid(part, &grid, NULL, false);
    free(title);
}

/* ---- events ---- */

static enum live_style style_of(const struct poolcuda_event *event) {
    switch (event->type) {
    case POOLCUDA_EVENT_oom:
    case POOLCUDA_EVENT_bad_free:
        return STYLE_ALARM;
    case POOLCUDA_EVENT_oom_retry:
    case POOLCUDA_EVENT_fallback:
    case POOLCUDA_EVENT_trim:
        return STYLE_WARNING;
    default:
        return STYLE_PLAIN;
    }
}

static void put_event(struct grid *grid, const struct segment *segment, const struct poolcuda_event *event) {
    const char *type = words_event_type(event), *reason = words_oom_reason(event);
    grid_put(grid, text_duration(derive_age(segment, event->time_ns)).s);
    grid_put(grid, type == NULL ? "unknown" : type);
    grid_put(grid, event->pool == 0 ? "-" : text_count(event->pool).s);
    grid_put(grid, (event->address != 0 ? text_handle(event->address) : text_bytes(event->requested_bytes)).s);
    grid_put(grid, text_bytes(event->live_bytes).s);
    grid_put(grid, text_bytes(event->cached_bytes).s);
    grid_put(grid, text_bytes(event->largest_free_bytes).s);
    if (event->type == POOLCUDA_EVENT_fallback)
        grid_put(grid, text_count(event->reason).s);
    else
        grid_put(grid, reason == NULL ? "-" : reason);
}

void part_events(const struct live_part *part) {
    static const char *const titles[] = {"AGO", "EVENT", "POOL", "ASKED", "LIVE", "CACHED", "LARGEST", "REASON"};
    const struct segment *segment = part->segment;
    const uint64_t since = part->live->model.counting_since_ns;
    enum live_style *styles = memory_new(segment->event_count, sizeof(*styles));
    struct grid grid = {0};
    size_t count = 0;
    add_columns(&grid, titles, sizeof(titles) / sizeof(titles[0]), 1u << 1 | 1u << 7);
    for (size_t i = segment->event_count; i-- > 0;) {
        if (segment->events[i].time_ns < since) continue;
        put_event(&grid, segment, &segment->events[i]);
        styles[count++] = style_of(&segment->events[i]);
    }
    part_title(part, count == 0 ? "No events" : "Events, newest first");
    if (count != 0) add_grid(part, &grid, styles, true);
    free(styles);
}
