/* SPDX-License-Identifier: MIT
 *
 * The one table of keys: what they do where, the page of help, and `poolstat help keys`.
 */
#ifndef POOLSTAT_LIVE_KEYS_H
#define POOLSTAT_LIVE_KEYS_H

#include <stddef.h>
#include <stdint.h>

/* A key is a character of Unicode, or one of these. */
enum live_key {
    LIVE_KEY_NONE = 0,
    LIVE_KEY_ENTER = '\n',
    LIVE_KEY_ESCAPE = 0x1b,
    LIVE_KEY_BACKSPACE = 0x7f,
    LIVE_KEY_UP = 0x200000,
    LIVE_KEY_DOWN,
    LIVE_KEY_LEFT,
    LIVE_KEY_RIGHT,
    LIVE_KEY_PAGE_UP,
    LIVE_KEY_PAGE_DOWN,
    LIVE_KEY_HOME,
    LIVE_KEY_END,
    LIVE_KEY_F1 = 0x200101,
    LIVE_KEY_F3 = LIVE_KEY_F1 + 2,
    LIVE_KEY_F4,
    LIVE_KEY_F10 = LIVE_KEY_F1 + 9,
    LIVE_KEY_F12 = LIVE_KEY_F1 + 11
};

enum live_action {
    LIVE_DO_NOTHING,
    LIVE_DO_QUIT,
    LIVE_DO_HELP,
    LIVE_DO_BACK,
    LIVE_DO_OPEN,
    LIVE_DO_UP,
    LIVE_DO_DOWN,
    LIVE_DO_LEFT,
    LIVE_DO_RIGHT,
    LIVE_DO_PAGE_UP,
    LIVE_DO_PAGE_DOWN,
    LIVE_DO_FIRST,
    LIVE_DO_LAST,
    LIVE_DO_SEARCH,
    LIVE_DO_FIND_NEXT,
    LIVE_DO_FIND_PREVIOUS,
    LIVE_DO_FILTER,
    LIVE_DO_SORT_LEFT,
    LIVE_DO_SORT_RIGHT,
    LIVE_DO_INVERT,
    LIVE_DO_PAUSE,
    LIVE_DO_COUNT,
    LIVE_DO_COUNT_ALL,
    LIVE_DO_SNAPSHOT
};

struct live_key_line {
    enum live_action action;
    unsigned pages;    /* bits by enum live_page, where the last line has it */
    uint32_t keys[4];  /* ended by LIVE_KEY_NONE where there are fewer */
    const char *names; /* of the keys, as help has them */
    const char *brief; /* in the last line; NULL: not there */
    const char *help;
};

const struct live_key_line *live_keys_lines(size_t *count);
enum live_action live_keys_action(uint32_t key);

#endif
