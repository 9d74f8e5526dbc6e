/* SPDX-License-Identifier: MIT
 *
 * Prints the block map: a line of cells for each segment, with as many cells as fit into the line.
 */
#include "map_text.h"

#include <stdio.h>
#include <string.h>

#include "derive.h"
#include "text.h"
#include "words.h"

#define INDENT 1u
#define SIZE_COLUMNS 8u  /* of "1023 MiB"; plain numbers need more */
#define SHARE_COLUMNS 4u /* of "100%" */

/* What stands in front of the cells, and how many there are. */
struct layout {
    size_t address; /* width of addresses, 0: they are left out */
    size_t size;    /* width of sizes */
    size_t front;   /* of all that stands there */
    size_t cells;
};

static struct layout layout_of(const struct map *map, size_t width) {
    struct layout layout = {.address = strlen("ADDRESS"), .size = SIZE_COLUMNS, .cells = POOLCUDA_MAP_CELLS};
    for (size_t i = 0; i < map->count; i++) {
        const size_t needed = strlen(text_handle(map->segments[i].row->address).s);
        const size_t size = strlen(text_bytes(map->segments[i].row->size_bytes).s);
        if (needed > layout.address) layout.address = needed;
        if (size > layout.size) layout.size = size;
    }
    layout.front = INDENT + layout.size + 1 + SHARE_COLUMNS + 1;
    if (width != 0 && layout.front + layout.address + 1 + layout.cells > width) layout.address = 0;
    if (layout.address != 0) layout.front += layout.address + 1;
    while (width != 0 && layout.cells > 1 && layout.front + layout.cells > width) layout.cells /= 2;
    return layout;
}

/* Whole percents; all and nothing are said only of what is exactly that. */
static struct text share(uint64_t part, uint64_t whole) {
    unsigned percent = (unsigned)(derive_ratio(part, whole) * 100);
    if (percent == 0 && part != 0) percent = 1;
    if (percent == 100 && part != whole) percent = 99;
    struct text text;
    snprintf(text.s, sizeof(text.s), "%u%%", percent);
    return text;
}

static void colour(const struct options *options, const struct map_look *look) {
    if (!options->coloured) return;
    const unsigned ink = look->ink < 8 ? 30u + look->ink : 82u + look->ink;
    printf("\x1b[%u;%um", 40u + look->background, ink);
}

static void colour_end(const struct options *options) {
    if (options->coloured) fputs("\x1b[0m", stdout);
}

/* `letter`: what is printed of a cell. */
static void print_cells(const struct options *options, const struct map_cell *cells, size_t count,
                        char (*letter)(const struct map_cell *cell)) {
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || cells[i].state != cells[i - 1].state) {
            if (i != 0) colour_end(options);
            colour(options, map_look(cells[i].state));
        }
        putchar(letter(&cells[i]));
    }
    colour_end(options);
    putchar('\n');
}

static void print_front(const struct layout *layout, const char *address, const char *size, const char *live) {
    printf("%*s", (int)INDENT, "");
    if (layout->address != 0) printf("%-*s ", (int)layout->address, address);
    printf("%*s %*s", (int)layout->size, size, (int)SHARE_COLUMNS, live);
}

static void print_segment(const struct options *options, const struct layout *layout,
                          const struct map_segment *segment) {
    struct map_cell cells[POOLCUDA_MAP_CELLS];
    const struct poolcuda_map_row *row = segment->row;
    const size_t count = map_scale(segment, layout->cells, cells);
    print_front(layout, text_handle(row->address).s, text_bytes(row->size_bytes).s,
                share(segment->bytes[MAP_live], row->size_bytes).s);
    putchar(' ');
    print_cells(options, cells, count, map_letter);
    if (!options->classes) return;
    printf("%*s", (int)layout->front, "");
    print_cells(options, cells, count, map_class_letter);
}

/* Words in lines that fit. */
struct line {
    size_t width, used; /* 0: of any length */
};

static void put_word(struct line *line, const char *word) {
    const size_t needed = text_width(word);
    if (line->used != 0 && line->width != 0 && line->used + 2 + needed > line->width) {
        putchar('\n');
        line->used = 0;
    }
    line->used += printf("%s%s", line->used == 0 ? " " : "  ", word) > 0 ? needed + 2 : 0;
}

static void end_line(struct line *line) {
    if (line->used != 0) putchar('\n');
    line->used = 0;
}

static void print_sums(const struct options *options, const struct map *map) {
    struct line line = {.width = options->width};
    char word[80];
    for (unsigned state = 0; state < MAP_STATES; state++) {
        if (map->bytes[state] == 0) continue;
        snprintf(word, sizeof(word), "%s %s", map_look(state)->name, text_bytes(map->bytes[state]).s);
        put_word(&line, word);
    }
    end_line(&line);
    if (!map->outdated) return;
    snprintf(word, sizeof(word), "it has changed since: now live %s,", text_bytes(map->live_now).s);
    put_word(&line, word);
    snprintf(word, sizeof(word), "cached %s", text_bytes(map->cached_now).s);
    put_word(&line, word);
    end_line(&line);
}

static void print_classes(const struct options *options, const struct map *map) {
    struct line line = {.width = options->width};
    bool used[POOLCUDA_SIZE_CLASSES] = {false};
    char word[80];
    for (size_t i = 0; i < map->count; i++)
        for (size_t k = 0; k < POOLCUDA_MAP_CELLS; k++)
            if (map->segments[i].cells[k].size_class >= 0) used[map->segments[i].cells[k].size_class] = true;
    putchar('\n');
    for (int class = 0; class < (int)POOLCUDA_SIZE_CLASSES; class ++) {
        const struct map_cell cell = {.size_class = class};
        const uint64_t most = derive_class_bytes((unsigned)class);
        if (!used[class]) continue;
        if (most == UINT64_MAX)
            snprintf(word, sizeof(word), "%c larger blocks", map_class_letter(&cell));
        else
            snprintf(word, sizeof(word), "%c blocks up to %s", map_class_letter(&cell), text_bytes(most).s);
        put_word(&line, word);
    }
    end_line(&line);
}

static void print_title(const struct map *map) {
    const struct poolcuda_pool *record = &map->pool->record;
    const char *kind = words_kind(record);
    printf("\nPool %u: device %s, %s segments", map->pool->number,
           text_count(record->device < 0 ? TEXT_UNKNOWN : (uint64_t)record->device).s, kind == NULL ? "unknown" : kind);
    if (map->age_ns != UINT64_MAX) printf(", as of %s ago", text_duration(map->age_ns).s);
    if (map->approximate) printf(" (~ approximate)");
    putchar('\n');
}

void map_text_print(const struct options *options, const struct map *map) {
    print_title(map);
    if (map->count == 0) {
        printf(map->left_out_segments == 0 ? " no segments\n" : " its segments have not been looked at yet\n");
        return;
    }
    const struct layout layout = layout_of(map, options->width);
    print_sums(options, map);
    putchar('\n');
    print_front(&layout, "ADDRESS", "SIZE", "LIVE");
    putchar('\n');
    for (size_t i = 0; i < map->count; i++) print_segment(options, &layout, &map->segments[i]);
    if (map->left_out_segments != 0)
        printf(" and %s more segment%s, %s, without a row\n", text_count(map->left_out_segments).s,
               map->left_out_segments == 1 ? "" : "s", text_bytes(map->left_out_bytes).s);
    if (options->classes) print_classes(options, map);
}

void map_text_legend(const struct options *options) {
    struct line line = {.width = options->width};
    char word[80];
    putchar('\n');
    for (unsigned state = 0; state < MAP_STATES; state++) {
        const struct map_look *look = map_look(state);
        snprintf(word, sizeof(word), "%c %s", look->letters[0], look->name);
        put_word(&line, word);
    }
    put_word(&line, "small letters: mostly so");
    end_line(&line);
}
