/* SPDX-License-Identifier: MIT
 *
 * Builds the document's part about the block map. Cells are lists of numbers, one list for each thing that is known of
 * them.
 */
#include "map_json.h"

#include "derive.h"
#include "json.h"
#include "text.h"
#include "words.h"

static void set(json_t *object, const char *name, json_t *value) {
    json_object_set_new(object, name, value);
}

/* What lies above is a mark for "unknown", or garbage. */
static json_t *integer(uint64_t value) {
    return value > INT64_MAX ? json_null() : json_integer((json_int_t)value);
}

static json_t *parts(const struct map_segment *segment) {
    json_t *object = json_object();
    for (unsigned state = 0; state < MAP_STATES; state++) {
        json_t *list = json_array();
        if (segment->bytes[state] != 0)
            for (unsigned i = 0; i < POOLCUDA_MAP_CELLS; i++)
                json_array_append_new(list, json_integer(segment->cells[i].parts[state]));
        set(object, map_look(state)->name, list);
    }
    return object;
}

static json_t *letters(const struct map_segment *segment) {
    char text[POOLCUDA_MAP_CELLS + 1] = {0};
    for (unsigned i = 0; i < POOLCUDA_MAP_CELLS; i++) text[i] = map_letter(&segment->cells[i]);
    return json_string(text);
}

static json_t *size_classes(const struct map_segment *segment) {
    json_t *list = json_array();
    for (unsigned i = 0; i < POOLCUDA_MAP_CELLS; i++) {
        const int class = segment->cells[i].size_class;
        json_array_append_new(list, class < 0 ? json_null() : integer(derive_class_bytes((unsigned)class)));
    }
    return list;
}

static json_t *blocks(const struct map_segment *segment) {
    json_t *list = json_array();
    for (unsigned i = 0; i < POOLCUDA_MAP_CELLS; i++)
        json_array_append_new(list, json_integer(segment->cells[i].blocks));
    return list;
}

static json_t *segment_object(const struct map_segment *segment) {
    static const char *const uses[] = {[POOLCUDA_MAP_ORDINARY] = "ordinary",
                                       [POOLCUDA_MAP_PREALLOCATED] = "preallocated",
                                       [POOLCUDA_MAP_FIXED] = "fixed"};
    const struct poolcuda_map_row *row = segment->row;
    json_t *object = json_object();
    set(object, "address", json_string(text_handle(row->address).s));
    set(object, "size_bytes", integer(row->size_bytes));
    set(object, "use", json_string(uses[row->kind]));
#define SET(name, unit, kind, help) set(object, #name "_bytes", integer(segment->bytes[MAP_##name]));
    POOLCUDA_MAP_STATES(SET)
#undef SET
    set(object, "unused_bytes", integer(segment->bytes[MAP_unused]));
    set(object, "largest_free_bytes", integer(row->largest_free_bytes));
    set(object, "live_blocks", integer(row->live_blocks));
    set(object, "free_blocks", integer(row->free_blocks));
    set(object, "age_ns", integer(segment->age_ns));
    set(object, "letters", letters(segment));
    set(object, "parts", parts(segment));
    set(object, "cell_class_bytes", size_classes(segment));
    set(object, "cell_blocks", blocks(segment));
    return object;
}

static json_t *pool_object(const struct map *map) {
    const struct poolcuda_pool *record = &map->pool->record;
    const char *kind = words_kind(record);
    json_t *object = json_object(), *segments = json_array();
    set(object, "pool", json_integer(map->pool->number));
    set(object, "device", record->device < 0 ? json_null() : json_integer(record->device));
    set(object, "kind", kind == NULL ? json_null() : json_string(kind));
    set(object, "age_ns", integer(map->age_ns));
    set(object, "approximate", json_boolean(map->approximate));
    set(object, "live_now_bytes", integer(map->live_now));
    set(object, "cached_now_bytes", integer(map->cached_now));
    set(object, "outdated", json_boolean(map->outdated));
    set(object, "left_out_segments", integer(map->left_out_segments));
    set(object, "left_out_bytes", integer(map->left_out_bytes));
    for (size_t i = 0; i < map->count; i++) json_array_append_new(segments, segment_object(&map->segments[i]));
    set(object, "segments", segments);
    return object;
}

json_t *map_json(const struct process *process, const struct map *maps, size_t count) {
    const struct poolcuda_header *header = &process->segment->header;
    json_t *object = json_object(), *pools = json_array();
    set(object, "pid", process->pid == 0 ? json_null() : json_integer(process->pid));
    set(object, "namespace_pid", json_integer(process->inner_pid));
    set(object, "command", json_safe_string(header->command, sizeof(header->command)));
    set(object, "cell_parts", json_integer(POOLCUDA_MAP_PARTS));
    for (size_t i = 0; i < count; i++) json_array_append_new(pools, pool_object(&maps[i]));
    set(object, "pools", pools);
    return object;
}
