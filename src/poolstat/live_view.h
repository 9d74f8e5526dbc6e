/* SPDX-License-Identifier: MIT
 *
 * The live view beneath its terminal: what is on the screen, what a key does to it, and drawing it. All of it works
 * without a terminal.
 */
#ifndef POOLSTAT_LIVE_VIEW_H
#define POOLSTAT_LIVE_VIEW_H

#include "live_canvas.h"
#include "live_draw.h"
#include "live_model.h"
#include "poolstat.h"

#define LIVE_LEAST_WIDTH 40u
#define LIVE_LEAST_HEIGHT 8u
#define LIVE_TYPED_SIZE 128u

enum live_page { LIVE_LIST, LIVE_ONE, LIVE_HELP };
enum live_prompt { LIVE_NO_PROMPT, LIVE_SEARCH, LIVE_FILTER };

struct live {
    const struct options *options;
    const struct draw_marks *marks;
    struct live_model model;
    uint64_t delay_ns;
    enum live_page page, page_before; /* `page_before`: where help was asked */
    bool paused, over;
    uint64_t updated_unix_ns; /* when the figures were collected */

    /* The list. */
    size_t selected, top; /* rows, by their place in model.shown */
    uint64_t selected_id;

    /* One process, or help. */
    uint64_t opened; /* id of the process */
    size_t pool;     /* of its pools, which is shown in detail */
    size_t scrolled;

    /* What the last drawing found: how far there is to scroll, and how many rows a page has. */
    size_t scroll_most, page_rows;

    enum live_prompt prompt;
    char typed[LIVE_TYPED_SIZE], search[LIVE_TYPED_SIZE];
    size_t selected_before; /* as it was when a search began, */
    char *filter_before;    /* or a filter */

    char message[256]; /* in place of the keys, until the next key */
    bool message_is_error;
};

void live_view_start(struct live *live, const struct options *options, bool ascii);
void live_view_free(struct live *live);

/* After the model was updated, or its rows were put in another order. */
void live_view_follow(struct live *live);

void live_view_key(struct live *live, uint32_t key); /* live_keys.h */

/* The process that is open; NULL when none is. */
struct live_process *live_view_opened(const struct live *live);

void live_view_draw(struct live *live, struct canvas *canvas);

/* The pages, below the first line and above the last. */
void live_list_draw(struct live *live, struct canvas *canvas);
void live_one_draw(struct live *live, struct canvas *canvas);
void live_help_draw(struct live *live, struct canvas *canvas);

/* Shows rows of `page` from live->scrolled on, in `rows` of the canvas from `row` on. */
void live_scroll_draw(struct live *live, struct canvas *canvas, size_t row, size_t rows, const struct canvas *page);

/* F12. Writes what is shown (the list's processes, or the one that is open) as a JSON file into the working folder,
 * and says so in the message. */
void live_snapshot(struct live *live);

void live_say(struct live *live, bool is_error, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* "ended", "in driver 12.1 s", or "": what is to be known of a process before its figures. */
struct text live_mark(const struct live *live, const struct live_process *process);

#endif
