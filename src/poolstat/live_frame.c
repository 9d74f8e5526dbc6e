/* SPDX-License-Identifier: MIT
 *
 * The screen as a whole: the first line says what is shown, the last one which keys there are, and the page is between.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "live_keys.h"
#include "live_view.h"
#include "map_model.h"
#include "memory.h"
#include "text.h"
#include "words.h"

/* Texts one behind the other in one row. */
struct line {
    struct canvas *canvas;
    size_t row, at;
};

static void put(struct line *line, enum live_style style, const char *text) {
    line->at += canvas_put(line->canvas, line->row, line->at, SIZE_MAX, style, text);
}

static void put_format(struct line *line, enum live_style style, const char *format, const char *text) {
    char *whole = memory_format(format, text); /* one of ours, for one text */
    put(line, style, whole);
    free(whole);
}

static void draw_title(const struct live *live, struct line *line) {
    const struct live_model *model = &live->model;
    const struct live_process *opened = live_view_opened(live);
    if (live->page == LIVE_HELP) {
        put(line, STYLE_FRAME, "keys and pictures");
    } else if (live->page == LIVE_ONE && opened != NULL) {
        put_format(line, STYLE_FRAME, "process %s", text_count(words_pid(&opened->process)).s);
        put_format(line, STYLE_FRAME, "  %s", opened->command);
    } else {
        put_format(line, STYLE_FRAME, model->process_count == 1 ? "%s process" : "%s processes",
                   text_count(model->process_count).s);
        put_format(line, STYLE_FRAME, "  by %s", live_sort_title(model->sort));
        put(line, STYLE_FRAME, live_sort_rises(model) ? live->marks->ascending : live->marks->descending);
        if (model->filter != NULL) put_format(line, STYLE_WARNING, "  filter '%s'", model->filter);
    }
}

static void draw_first_line(const struct live *live, struct canvas *canvas) {
    const struct live_model *model = &live->model;
    struct line line = {canvas, 0, 0};
    const struct text time = words_time(live->updated_unix_ns);
    const char *clock = time.s; /* "2026-02-28T12:00:00.250+0100" */
    canvas_style(canvas, 0, 0, canvas->width, STYLE_FRAME);
    put(&line, STYLE_FRAME, " poolstat  ");
    draw_title(live, &line);
    if (live->paused) put(&line, STYLE_WARNING, "  PAUSED");
    if (model->counting_since_ns != 0)
        put_format(&line, STYLE_WARNING, "  counting for %s",
                   text_duration(derive_difference(model->updated_ns, model->counting_since_ns)).s);
    char *right = live->options->timestamps || strlen(clock) < 19
                      ? memory_format(" %s ", clock)
                      : memory_format(" every %.3g s  %.8s ", (double)live->delay_ns / 1e9, clock + 11);
    const size_t width = text_width(right);
    if (line.at + width <= canvas->width)
        canvas_put_right(canvas, 0, line.at, canvas->width - line.at, STYLE_FRAME, right);
    free(right);
}

static void draw_keys(const struct live *live, struct line *line) {
    size_t count;
    const struct live_key_line *lines = live_keys_lines(&count);
    for (size_t i = 0; i < count; i++) {
        if (lines[i].brief == NULL || (lines[i].pages & 1u << live->page) == 0) continue;
        char *key = memory_format("%.*s", (int)strcspn(lines[i].names, ","), lines[i].names);
        if (line->at + strlen(key) + 1 + strlen(lines[i].brief) <= line->canvas->width) {
            put(line, STYLE_KEY, key);
            put_format(line, STYLE_PLAIN, " %s ", lines[i].brief);
        }
        free(key);
    }
}

/* What was typed, from its end on where it is too long. */
static void draw_prompt(const struct live *live, struct line *line) {
    const char *typed = live->typed;
    size_t columns;
    put(line, STYLE_KEY, live->prompt == LIVE_SEARCH ? "Search:" : "Filter:");
    line->at++;
    while (line->at + text_width(typed) + 1 > line->canvas->width && *typed != '\0')
        typed += text_character(typed, &columns);
    put(line, STYLE_PLAIN, typed);
    put(line, STYLE_PLAIN, "_");
}

static void draw_last_line(const struct live *live, struct canvas *canvas) {
    struct line line = {canvas, canvas->height - 1, 0};
    if (live->prompt != LIVE_NO_PROMPT)
        draw_prompt(live, &line);
    else if (live->message[0] != '\0')
        put(&line, live->message_is_error ? STYLE_ALARM : STYLE_GOOD, live->message);
    else
        draw_keys(live, &line);
}

static void draw_too_small(struct canvas *canvas) {
    char *text = memory_format("%zux%zu is too small:", canvas->width, canvas->height);
    char *needed = memory_format("%ux%u is needed", LIVE_LEAST_WIDTH, LIVE_LEAST_HEIGHT);
    canvas_put(canvas, 0, 0, SIZE_MAX, STYLE_ALARM, text);
    canvas_put(canvas, 1, 0, SIZE_MAX, STYLE_ALARM, needed);
    free(text);
    free(needed);
}

void live_scroll_draw(struct live *live, struct canvas *canvas, size_t row, size_t rows, const struct canvas *page) {
    live->page_rows = rows;
    live->scroll_most = page->height > rows ? page->height - rows : 0;
    if (live->scrolled > live->scroll_most) live->scrolled = live->scroll_most;
    canvas_copy(canvas, row, 0, page, live->scrolled, rows);
    if (live->scroll_most == 0) return;
    char *more = memory_format(" %zu%% ", live->scrolled * 100 / live->scroll_most);
    canvas_put_right(canvas, row + rows - 1, 0, canvas->width, STYLE_DIM, more);
    free(more);
}

static void add_help_line(struct canvas *page, const char *names, const char *help) {
    const size_t row = canvas_add_row(page);
    canvas_put(page, row, 1, 14, STYLE_KEY, names);
    canvas_put(page, row, 16, SIZE_MAX, STYLE_PLAIN, help);
}

static void add_mark_line(struct canvas *page, enum live_style style, const char *mark, const char *help) {
    const size_t row = canvas_add_row(page);
    for (size_t i = 0; i < 3; i++) canvas_put(page, row, 1 + i, 1, style, mark);
    canvas_put(page, row, 16, SIZE_MAX, STYLE_PLAIN, help);
}

/* Of the block map. */
static void add_state_line(struct canvas *page, enum map_state state) {
    const struct map_look *look = map_look(state);
    const size_t row = canvas_add_row(page);
    char *text = memory_format("blocks: %s: %s", look->name, map_help(state));
    canvas_fill(page, row, 1, 1, (enum live_style)(STYLE_MAP + state), (char[]){look->letters[0], '\0'});
    canvas_fill(page, row, 3, 1, (enum live_style)(STYLE_MAP + state), (char[]){look->letters[1], '\0'});
    canvas_put(page, row, 16, SIZE_MAX, STYLE_PLAIN, text);
    free(text);
}

void live_help_draw(struct live *live, struct canvas *canvas) {
    const struct draw_marks *marks = live->marks;
    struct canvas page;
    size_t count;
    const struct live_key_line *lines = live_keys_lines(&count);
    canvas_start(&page, canvas->width, 0);
    for (size_t i = 0; i < count; i++) add_help_line(&page, lines[i].names, lines[i].help);
    canvas_add_row(&page);
    add_mark_line(&page, STYLE_LIVE, marks->live, "live: held by the program");
    add_mark_line(&page, STYLE_CACHED, marks->cached, "cached: free and kept for reuse");
    add_mark_line(&page, STYLE_RESERVED, marks->reserved, "what else is reserved from the driver");
    add_mark_line(&page, STYLE_DIM, marks->empty, "the rest of the device's memory");
    add_mark_line(&page, STYLE_HISTORY, marks->levels[DRAW_LEVELS / 2],
                  "live memory, one column for each refresh, the newest to the right");
    add_mark_line(&page, STYLE_PLAIN, "~", "approximate: the process was busy");
    canvas_add_row(&page);
    for (unsigned i = 0; i < MAP_STATES; i++) add_state_line(&page, (enum map_state)i);
    canvas_add_row(&page);
    add_help_line(&page, "", "What each figure means: poolstat help fields");
    live_scroll_draw(live, canvas, 1, canvas->height - 2, &page);
    canvas_free(&page);
}

void live_view_draw(struct live *live, struct canvas *canvas) {
    if (canvas->width < LIVE_LEAST_WIDTH || canvas->height < LIVE_LEAST_HEIGHT) {
        draw_too_small(canvas);
        return;
    }
    if (live->page == LIVE_HELP)
        live_help_draw(live, canvas);
    else if (live->page == LIVE_ONE)
        live_one_draw(live, canvas);
    else
        live_list_draw(live, canvas);
    draw_first_line(live, canvas);
    draw_last_line(live, canvas);
}
