/* SPDX-License-Identifier: MIT
 *
 * What keys do. The selection stays with its process whatever the order becomes.
 */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <wctype.h>

#include "live_keys.h"
#include "live_view.h"
#include "memory.h"
#include "repeat.h"
#include "text.h"
#include "words.h"

void live_view_start(struct live *live, const struct options *options, bool ascii) {
    *live = (struct live){.options = options,
                          .marks = draw_marks(ascii),
                          .delay_ns = options->delay_ns == 0 ? REPEAT_DEFAULT_NS : options->delay_ns};
    live_model_start(&live->model);
}

void live_view_free(struct live *live) {
    live_model_free(&live->model);
    free(live->filter_before);
}

void live_say(struct live *live, bool is_error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(live->message, sizeof(live->message), format, arguments);
    va_end(arguments);
    live->message_is_error = is_error;
}

struct live_process *live_view_opened(const struct live *live) {
    return live->opened == 0 ? NULL : live_model_process(&live->model, live->opened);
}

struct text live_mark(const struct live *live, const struct live_process *process) {
    struct text text = words_mark(&process->process);
    if (process->ended_ns == 0) return text;
    snprintf(text.s, sizeof(text.s), "ended %.32s ago",
             text_duration(derive_difference(live->model.updated_ns, process->ended_ns)).s);
    return text;
}

static void close_process(struct live *live) {
    if (live->page == LIVE_ONE) live->page = LIVE_LIST;
    if (live->page_before == LIVE_ONE) live->page_before = LIVE_LIST;
    live->opened = 0;
    live->scrolled = 0;
}

static void select_place(struct live *live, size_t place) {
    const struct live_model *model = &live->model;
    if (place >= model->shown_count) place = model->shown_count == 0 ? 0 : model->shown_count - 1;
    live->selected = place;
    live->selected_id = model->shown_count == 0 ? 0 : model->shown[place]->id;
}

void live_view_follow(struct live *live) {
    const struct live_model *model = &live->model;
    size_t place = 0;
    while (place < model->shown_count && model->shown[place]->id != live->selected_id) place++;
    select_place(live, place < model->shown_count ? place : live->selected);
    if (live->opened == 0 || live_view_opened(live) != NULL) return;
    close_process(live);
    live_say(live, false, "the process has ended");
}

/* ---- moving ---- */

static size_t moved(size_t place, ptrdiff_t by, size_t most) {
    if (by < 0) return place < (size_t)-by ? 0 : place - (size_t)-by;
    return place > most || most - place < (size_t)by ? most : place + (size_t)by;
}

/* In rows, down where positive. */
static void move(struct live *live, ptrdiff_t by) {
    if (live->page == LIVE_LIST)
        select_place(live, moved(live->selected, by, live->model.shown_count));
    else
        live->scrolled = moved(live->scrolled, by, live->scroll_most);
}

static void open_process(struct live *live) {
    if (live->page != LIVE_LIST || live->selected >= live->model.shown_count) return;
    const struct live_process *process = live->model.shown[live->selected]->process;
    if (process->process.segment == NULL) {
        live_say(live, true, "there are no figures: the segment %s", process->process.why);
        return;
    }
    live->opened = process->id;
    live->page = LIVE_ONE;
    live->pool = live->scrolled = 0;
}

static void go_back(struct live *live) {
    if (live->page == LIVE_HELP) {
        live->page = live->page_before;
        live->scrolled = 0;
    } else if (live->page == LIVE_ONE) {
        close_process(live);
    } else {
        live_model_filter(&live->model, NULL);
        live_view_follow(live);
    }
}

static void change_pool(struct live *live, bool next) {
    const struct live_process *process = live_view_opened(live);
    const struct segment *segment = process == NULL ? NULL : live_segment(process);
    if (segment == NULL || live->page != LIVE_ONE) return;
    if (next && live->pool + 1 < segment->pool_count) live->pool++;
    if (!next && live->pool > 0) live->pool--;
}

/* ---- order ---- */

static void sort_beside(struct live *live, bool right) {
    const unsigned step = right ? 1 : LIVE_SORT_COUNT - 1;
    live_model_sort(&live->model, (enum live_sort)((live->model.sort + step) % LIVE_SORT_COUNT), false);
    live_view_follow(live);
}

/* From the place `from` on, which is looked at last; false when nothing fits. */
static bool find(struct live *live, size_t from, bool forward) {
    const struct live_model *model = &live->model;
    const size_t count = model->shown_count;
    if (live->search[0] == '\0') return true;
    for (size_t i = 1; i <= count; i++) {
        const size_t place = (from + (forward ? i : count - i)) % count;
        if (!live_row_matches(model->shown[place], live->search)) continue;
        select_place(live, place);
        return true;
    }
    return false;
}

static void find_again(struct live *live, bool forward) {
    if (live->page != LIVE_LIST) return;
    if (live->search[0] == '\0')
        live_say(live, false, "nothing was searched for yet: /");
    else if (!find(live, live->selected, forward))
        live_say(live, true, "no process has '%s'", live->search);
}

/* ---- typing ---- */

static void begin_prompt(struct live *live, enum live_prompt prompt) {
    if (live->page != LIVE_LIST) return;
    live->prompt = prompt;
    live->selected_before = live->selected;
    free(live->filter_before);
    live->filter_before = live->model.filter == NULL ? NULL : memory_copy(live->model.filter);
    snprintf(live->typed, sizeof(live->typed), "%s",
             prompt == LIVE_FILTER && live->model.filter != NULL ? live->model.filter : "");
}

/* Takes effect as it is typed. */
static void apply_typed(struct live *live) {
    if (live->prompt == LIVE_FILTER) {
        live_model_filter(&live->model, live->typed);
        live_view_follow(live);
        return;
    }
    strcpy(live->search, live->typed);
    const size_t count = live->model.shown_count;
    if (count == 0 || !find(live, (live->selected_before + count - 1) % count, true))
        select_place(live, live->selected_before);
}

static void cancel_prompt(struct live *live) {
    if (live->prompt == LIVE_FILTER) {
        live_model_filter(&live->model, live->filter_before);
        live_view_follow(live);
    } else {
        live->search[0] = '\0';
        select_place(live, live->selected_before);
    }
    live->prompt = LIVE_NO_PROMPT;
}

static void end_prompt(struct live *live) {
    if (live->prompt == LIVE_SEARCH && live->search[0] != '\0' && live->model.shown_count != 0 &&
        !live_row_matches(live->model.shown[live->selected], live->search))
        live_say(live, true, "no process has '%s'", live->search);
    live->prompt = LIVE_NO_PROMPT;
}

static void erase_character(char *typed) {
    size_t length = strlen(typed);
    while (length > 0 && ((unsigned char)typed[length - 1] & 0xc0) == 0x80) length--;
    typed[length > 0 ? length - 1 : 0] = '\0';
}

/* What has no width of its own is not taken. */
static void type_character(struct live *live, uint32_t key) {
    char bytes[MB_LEN_MAX + 1] = "";
    mbstate_t state = {0};
    const size_t length = wcrtomb(bytes, (wchar_t)key, &state);
    if (key > 0x10ffff || wcwidth((wchar_t)key) <= 0 || length == (size_t)-1 ||
        strlen(live->typed) + length >= sizeof(live->typed))
        return;
    bytes[length] = '\0';
    strcat(live->typed, bytes);
}

static void prompt_key(struct live *live, uint32_t key) {
    if (key == LIVE_KEY_ESCAPE) {
        cancel_prompt(live);
        return;
    }
    if (key == LIVE_KEY_ENTER || key == '\r') {
        end_prompt(live);
        return;
    }
    if (key == LIVE_KEY_BACKSPACE || key == '\b')
        erase_character(live->typed);
    else if (key == ('u' & 0x1f))
        live->typed[0] = '\0';
    else
        type_character(live, key);
    apply_typed(live);
}

/* ---- */

static void toggle_help(struct live *live) {
    if (live->page == LIVE_HELP) {
        go_back(live);
        return;
    }
    live->page_before = live->page;
    live->page = LIVE_HELP;
    live->scrolled = 0;
}

static void act(struct live *live, enum live_action action) {
    switch (action) {
    case LIVE_DO_QUIT:
        live->over = true;
        break;
    case LIVE_DO_HELP:
        toggle_help(live);
        break;
    case LIVE_DO_BACK:
        go_back(live);
        break;
    case LIVE_DO_OPEN:
        open_process(live);
        break;
    case LIVE_DO_UP:
        move(live, -1);
        break;
    case LIVE_DO_DOWN:
        move(live, 1);
        break;
    case LIVE_DO_LEFT:
        change_pool(live, false);
        break;
    case LIVE_DO_RIGHT:
        live->page == LIVE_LIST ? open_process(live) : change_pool(live, true);
        break;
    case LIVE_DO_PAGE_UP:
        move(live, -(ptrdiff_t)live->page_rows);
        break;
    case LIVE_DO_PAGE_DOWN:
        move(live, (ptrdiff_t)live->page_rows);
        break;
    case LIVE_DO_FIRST:
        move(live, -PTRDIFF_MAX);
        break;
    case LIVE_DO_LAST:
        move(live, PTRDIFF_MAX);
        break;
    case LIVE_DO_SEARCH:
        begin_prompt(live, LIVE_SEARCH);
        break;
    case LIVE_DO_FIND_NEXT:
    case LIVE_DO_FIND_PREVIOUS:
        find_again(live, action == LIVE_DO_FIND_NEXT);
        break;
    case LIVE_DO_FILTER:
        begin_prompt(live, LIVE_FILTER);
        break;
    case LIVE_DO_SORT_LEFT:
    case LIVE_DO_SORT_RIGHT:
        sort_beside(live, action == LIVE_DO_SORT_RIGHT);
        break;
    case LIVE_DO_INVERT:
        live_model_sort(&live->model, live->model.sort, !live->model.inverted);
        live_view_follow(live);
        break;
    case LIVE_DO_PAUSE:
        live->paused = !live->paused;
        break;
    case LIVE_DO_COUNT:
        live_model_count_from_here(&live->model);
        live_view_follow(live);
        break;
    case LIVE_DO_COUNT_ALL:
        live_model_count_all(&live->model);
        live_view_follow(live);
        break;
    case LIVE_DO_SNAPSHOT:
        live_snapshot(live);
        break;
    case LIVE_DO_NOTHING:
        break;
    }
}

void live_view_key(struct live *live, uint32_t key) {
    live->message[0] = '\0';
    if (live->prompt != LIVE_NO_PROMPT)
        prompt_key(live, key);
    else
        act(live, live_keys_action(key));
}
