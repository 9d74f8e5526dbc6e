/* SPDX-License-Identifier: MIT
 *
 * From the rows of a segment of figures to cells. Rows have been checked: their parts are no more than a cell.
 */
#include "map_model.h"

#include <stdlib.h>
#include <string.h>

#include "derive.h"
#include "memory.h"

#define BEHIND_NS UINT64_C(1000000000)

/* Colours that people who see fewer of them can tell apart (after Okabe and Ito). */
static const struct map_look looks[MAP_STATES] = {
    [MAP_live] = {"live", {'L', 'l'}, "#0072b2", "#ffffff", 4, 15},
    [MAP_idle] = {"idle", {'I', 'i'}, "#2bb083", "#000000", 2, 0},
    [MAP_ordered] = {"ordered", {'O', 'o'}, "#7cc6f0", "#000000", 6, 0},
    [MAP_waiting] = {"waiting", {'W', 'w'}, "#e69f00", "#000000", 3, 0},
    [MAP_fixed] = {"fixed", {'F', 'f'}, "#cc79a7", "#000000", 5, 15},
    [MAP_kept] = {"kept", {'K', 'k'}, "#d55e00", "#ffffff", 1, 15},
    [MAP_unused] = {"unused", {'.', ':'}, "#e4e4e4", "#555555", 7, 0},
};

const struct map_look *map_look(enum map_state state) {
    return &looks[state];
}

const char *map_help(enum map_state state) {
    static const char *const helps[MAP_STATES] = {
#define HELP(name, unit, kind, help) [MAP_##name] = help,
        POOLCUDA_MAP_STATES(HELP)
#undef HELP
            [MAP_unused] = "preallocated (POOL_PREALLOC_MB), and in use for nothing"};
    return helps[state];
}

/* What follows from the parts. */
static void judge(struct map_cell *cell) {
    cell->state = 0;
    for (unsigned i = 1; i < MAP_STATES; i++)
        if (cell->parts[i] > cell->parts[cell->state]) cell->state = i;
    cell->mixed = cell->parts[cell->state] < cell->whole;
}

static struct map_cell cell_of(const struct poolcuda_map_cell *record) {
    struct map_cell cell = {.whole = POOLCUDA_MAP_PARTS, .size_class = (int)record->size_class - 1};
    unsigned used = 0;
#define TAKE(name, unit, kind, help) used += cell.parts[MAP_##name] = record->name;
    POOLCUDA_MAP_STATES(TAKE)
#undef TAKE
    cell.parts[MAP_unused] = cell.whole - used;
    cell.blocks = record->blocks;
    cell.many = record->blocks == UINT8_MAX;
    judge(&cell);
    return cell;
}

static void make_segment(const struct segment *from, const struct poolcuda_map_row *row, struct map_segment *segment) {
    uint64_t used = 0;
    *segment = (struct map_segment){.row = row, .age_ns = derive_age(from, row->refreshed_ns)};
#define TAKE(name, unit, kind, help) used += segment->bytes[MAP_##name] = row->name##_bytes;
    POOLCUDA_MAP_STATES(TAKE)
#undef TAKE
    segment->bytes[MAP_unused] = derive_difference(row->size_bytes, used);
    for (unsigned i = 0; i < POOLCUDA_MAP_CELLS; i++) segment->cells[i] = cell_of(&row->cells[i]);
}

static uint64_t sum(uint64_t a, uint64_t b) {
    uint64_t total;
    return __builtin_add_overflow(a, b, &total) ? UINT64_MAX : total;
}

/* Rows of a busy program are always a little behind. With segments left out, they may only not have more. */
static void judge_age(struct map *map) {
    struct poolcuda_pool figures;
    struct counters counters;
    struct measures measures;
    derive_figures(map->pool, &figures);
    derive_counters(map->pool, &counters);
    derive_measures(&figures, &counters, &measures);
    map->live_now = measures.live_bytes;
    map->cached_now = measures.cached_bytes;
    const bool other =
        map->left_out_segments == 0 ? map->bytes[MAP_live] != map->live_now : map->bytes[MAP_live] > map->live_now;
    map->outdated = map->count != 0 && map->age_ns > BEHIND_NS && other;
}

void map_make(const struct segment *segment, const struct segment_pool *pool, struct map *map) {
    uint64_t size = 0;
    *map = (struct map){.pool = pool, .age_ns = UINT64_MAX, .approximate = pool->map_approximate};
    map->segments = memory_new(segment->map_count, sizeof(*map->segments));
    for (size_t i = 0; i < segment->map_count; i++) {
        if (segment->map[i].pool != pool->number) continue;
        struct map_segment *made = &map->segments[map->count];
        make_segment(segment, &segment->map[i], made);
        for (unsigned state = 0; state < MAP_STATES; state++)
            map->bytes[state] = sum(map->bytes[state], made->bytes[state]);
        size = sum(size, made->row->size_bytes);
        if (map->count++ == 0 || made->age_ns > map->age_ns) map->age_ns = made->age_ns;
    }
    map->left_out_segments = derive_difference(pool->record.segments, map->count);
    map->left_out_bytes = map->left_out_segments == 0 ? 0 : derive_difference(pool->record.reserved_bytes, size);
    judge_age(map);
}

void map_free(struct map *map) {
    free(map->segments);
    *map = (struct map){0};
}

uint64_t map_place(const struct map_segment *segment, size_t cell) {
    const uint64_t size = segment->row->size_bytes;
    return size / POOLCUDA_MAP_CELLS * cell + size % POOLCUDA_MAP_CELLS * cell / POOLCUDA_MAP_CELLS;
}

/* Of neighbours, the one that most of their common state is in says of what size. */
static struct map_cell together(const struct map_cell *cells, size_t count) {
    struct map_cell cell = {.size_class = -1};
    for (size_t i = 0; i < count; i++) {
        for (unsigned state = 0; state < MAP_STATES; state++) cell.parts[state] += cells[i].parts[state];
        cell.whole += cells[i].whole;
        cell.blocks += cells[i].blocks;
        cell.many |= cells[i].many;
    }
    judge(&cell);
    unsigned most = 0;
    for (size_t i = 0; i < count; i++) {
        if (cells[i].parts[cell.state] <= most) continue;
        most = cells[i].parts[cell.state];
        cell.size_class = cells[i].size_class;
    }
    return cell;
}

size_t map_scale(const struct map_segment *segment, size_t columns, struct map_cell cells[POOLCUDA_MAP_CELLS]) {
    size_t count = POOLCUDA_MAP_CELLS;
    while (count > columns && count > 1) count /= 2;
    const size_t each = POOLCUDA_MAP_CELLS / count;
    for (size_t i = 0; i < count; i++) cells[i] = together(&segment->cells[i * each], each);
    return count;
}

char map_letter(const struct map_cell *cell) {
    return looks[cell->state].letters[cell->mixed];
}

char map_class_letter(const struct map_cell *cell) {
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    if (cell->size_class < 0) return ' ';
    return (size_t)cell->size_class < sizeof(letters) - 1 ? letters[cell->size_class] : '+';
}
