/* SPDX-License-Identifier: MIT
 *
 * The keys, as htop and nvtop have them.
 */
#include "live_keys.h"

#include "live_view.h"

#define LIST (1u << LIVE_LIST)
#define ONE (1u << LIVE_ONE)
#define HELP (1u << LIVE_HELP)
#define ALL (LIST | ONE | HELP)

static const struct live_key_line lines[] = {
    {LIVE_DO_HELP, ALL, {'?', LIVE_KEY_F1}, "?, F1", "help", "these keys, and what the pictures mean"},
    {LIVE_DO_UP, 0, {'k', LIVE_KEY_UP}, "k, Up", NULL, "up: the process above; scrolls where there is more to see"},
    {LIVE_DO_DOWN, 0, {'j', LIVE_KEY_DOWN}, "j, Down", NULL, "down"},
    {LIVE_DO_PAGE_UP, 0, {LIVE_KEY_PAGE_UP, 'b' & 0x1f}, "PgUp", NULL, "a page up"},
    {LIVE_DO_PAGE_DOWN, 0, {LIVE_KEY_PAGE_DOWN, 'f' & 0x1f}, "PgDn", NULL, "a page down"},
    {LIVE_DO_FIRST, 0, {'g', LIVE_KEY_HOME}, "g, Home", NULL, "to the first"},
    {LIVE_DO_LAST, 0, {'G', LIVE_KEY_END}, "G, End", NULL, "to the last"},
    {LIVE_DO_OPEN, LIST, {LIVE_KEY_ENTER, '\r'}, "Enter", "open", "everything about the process"},
    {LIVE_DO_RIGHT, ONE, {'l', LIVE_KEY_RIGHT}, "l, Right", "next pool", "opens the process; there: its next pool"},
    {LIVE_DO_LEFT, 0, {'h', LIVE_KEY_LEFT}, "h, Left", NULL, "the pool before"},
    {LIVE_DO_BACK,
     ONE | HELP,
     {LIVE_KEY_ESCAPE, LIVE_KEY_BACKSPACE, '\b'},
     "Esc, Backspace",
     "back",
     "back to the list; in the list: no filter any more"},
    {LIVE_DO_SEARCH,
     LIST,
     {'/', LIVE_KEY_F3},
     "/, F3",
     "search",
     "goes to a process by a part of its command, pid, GPU or state"},
    {LIVE_DO_FIND_NEXT, 0, {'n'}, "n", NULL, "the next that was searched for"},
    {LIVE_DO_FIND_PREVIOUS, 0, {'N'}, "N", NULL, "the one before"},
    {LIVE_DO_FILTER, LIST, {'\\', LIVE_KEY_F4}, "\\, F4", "filter", "shows only processes with that"},
    {LIVE_DO_SORT_LEFT, 0, {'<'}, "<", NULL, "sorts by the column to the left"},
    {LIVE_DO_SORT_RIGHT, LIST, {'>'}, ">", "sort", "sorts by the column to the right"},
    {LIVE_DO_INVERT, 0, {'I'}, "I", NULL, "the other way round"},
    {LIVE_DO_PAUSE, LIST | ONE, {'Z'}, "Z", "pause", "holds everything as it is, or goes on"},
    {LIVE_DO_COUNT, LIST | ONE, {'c'}, "c", "count", "counts from here: hits, rates and events since this moment"},
    {LIVE_DO_COUNT_ALL, 0, {'C'}, "C", NULL, "counts from each process's start again"},
    {LIVE_DO_SNAPSHOT,
     LIST | ONE,
     {LIVE_KEY_F12},
     "F12",
     "save",
     "saves what is shown as a JSON file in the working folder"},
    {LIVE_DO_QUIT, ALL, {'q', LIVE_KEY_F10}, "q, F10", "quit", "quits"},
};
#define COUNT (sizeof(lines) / sizeof(lines[0]))

const struct live_key_line *live_keys_lines(size_t *count) {
    *count = COUNT;
    return lines;
}

enum live_action live_keys_action(uint32_t key) {
    const size_t most = sizeof(lines[0].keys) / sizeof(lines[0].keys[0]);
    for (size_t i = 0; key != LIVE_KEY_NONE && i < COUNT; i++)
        for (size_t j = 0; j < most; j++)
            if (lines[i].keys[j] == key) return lines[i].action;
    return LIVE_DO_NOTHING;
}
