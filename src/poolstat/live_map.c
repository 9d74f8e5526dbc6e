/* SPDX-License-Identifier: MIT
 *
 * The block map in the page about one process: as `poolstat map` shows it, a row of cells for each segment of the pool.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "live_sections.h"
#include "map_model.h"
#include "memory.h"
#include "text.h"

#define SIZE_COLUMNS 9u /* "1023 MiB", and a blank before it */
#define LIVE_COLUMNS 7u /* ">99.9%", likewise */

static enum live_style style_of(enum map_state state) {
    return (enum live_style)(STYLE_MAP + state);
}

/* Letters of states, and how much is in each: nothing is said of those that are not there. */
static void add_sums(const struct live_part *part, const struct map *map) {
    struct canvas *page = part->page;
    size_t row = canvas_add_row(page), at = 1;
    for (unsigned state = 0; state < MAP_STATES; state++) {
        const struct map_look *look = map_look((enum map_state)state);
        if (map->bytes[state] == 0) continue;
        char *text = memory_format(" %s %s", look->name, text_bytes(map->bytes[state]).s);
        if (at != 1 && at + 1 + text_width(text) >= page->width) {
            row = canvas_add_row(page);
            at = 1;
        }
        canvas_fill(page, row, at, 1, style_of((enum map_state)state), (char[]){look->letters[0], '\0'});
        at += 1 + canvas_put(page, row, at + 1, SIZE_MAX, STYLE_PLAIN, text) + 2;
        free(text);
    }
}

static void add_segment(const struct live_part *part, const struct map_segment *segment) {
    struct canvas *page = part->page;
    const struct poolcuda_map_row *record = segment->row;
    const size_t row = canvas_add_row(page), front = SIZE_COLUMNS + LIVE_COLUMNS + 1;
    struct map_cell cells[POOLCUDA_MAP_CELLS];
    const size_t count = map_scale(segment, page->width - front - 1, cells);
    canvas_put_right(page, row, 0, SIZE_COLUMNS, STYLE_PLAIN, text_bytes(record->size_bytes).s);
    canvas_put_right(page, row, SIZE_COLUMNS, LIVE_COLUMNS, STYLE_PLAIN,
                     text_ratio(derive_ratio(segment->bytes[MAP_live], record->size_bytes)).s);
    for (size_t i = 0; i < count; i++)
        canvas_fill(page, row, front + i, 1, style_of(cells[i].state), (char[]){map_letter(&cells[i]), '\0'});
}

static char *title_of(const struct map *map) {
    char *age = map->age_ns == UINT64_MAX ? memory_copy("") : memory_format(", %s ago", text_duration(map->age_ns).s);
    char *title = memory_format("Blocks of pool %u by segment%s%s%s", map->pool->number, age,
                                map->approximate ? " (~ approximate)" : "", map->outdated ? ", changed since" : "");
    free(age);
    return title;
}

static void add_rest(const struct live_part *part, const struct map *map) {
    if (map->left_out_segments == 0) return;
    char *text = memory_format("and %s more segment%s, %s, without a row", text_count(map->left_out_segments).s,
                               map->left_out_segments == 1 ? "" : "s", text_bytes(map->left_out_bytes).s);
    canvas_put(part->page, canvas_add_row(part->page), 1, SIZE_MAX, STYLE_DIM, text);
    free(text);
}

void part_map(const struct live_part *part) {
    struct map map;
    if (part->pool == NULL) return;
    map_make(part->segment, part->pool, &map);
    char *title = title_of(&map);
    if (map.count != 0) {
        part_title(part, title);
        add_sums(part, &map);
        for (size_t i = 0; i < map.count; i++) add_segment(part, &map.segments[i]);
        add_rest(part, &map);
    }
    free(title);
    map_free(&map);
}
