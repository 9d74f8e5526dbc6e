/* SPDX-License-Identifier: MIT
 *
 * The layout of the figures, pinned by number: a reader built yesterday must read what is written today. A change of
 * any number here is a change of POOLCUDA_LAYOUT_VERSION. Compiles as C and as C++.
 */
#include "support/testing.h"

#include "poolcuda/stats.h"
#include "poolcuda/variables.h"

struct pin {
    const char *name;
    size_t offset, size;               /* as they are */
    size_t pinned_offset, pinned_size; /* as they have to be */
};

#define PIN(type, field, offset, size) \
    { #type "." #field, offsetof(struct type, field), sizeof(((struct type *)0)->field), offset, size }

/* Every field of one structure, in order: no gap, no overlap, nothing unlisted. */
static void check_pins(const char *type, size_t size, size_t pinned_size, const struct pin *pins, size_t count) {
    size_t end = 0;
    for (size_t i = 0; i < count; i++) {
        if (pins[i].offset != pins[i].pinned_offset || pins[i].size != pins[i].pinned_size)
            fail_msg("%s: offset %zu size %zu, pinned %zu and %zu", pins[i].name, pins[i].offset, pins[i].size,
                     pins[i].pinned_offset, pins[i].pinned_size);
        if (pins[i].offset != end)
            fail_msg("%s: offset %zu, but the field before ends at %zu", pins[i].name, pins[i].offset, end);
        end = pins[i].offset + pins[i].size;
    }
    if (size != pinned_size || end != size)
        fail_msg("%s: size %zu, pinned %zu, its fields end at %zu", type, size, pinned_size, end);
}

#define CHECK_PINS(type, pinned_size, pins) \
    check_pins(#type, sizeof(struct type), pinned_size, pins, sizeof(pins) / sizeof((pins)[0]))

static void layout_of_a_section_is_pinned(void **state) {
    (void)state;
    static const struct pin pins[] = {
        PIN(poolcuda_section, offset, 0, 4),
        PIN(poolcuda_section, count, 4, 4),
        PIN(poolcuda_section, stride, 8, 4),
        PIN(poolcuda_section, end, 12, 4),
    };
    CHECK_PINS(poolcuda_section, 16, pins);
}

static void layout_of_a_header_is_pinned(void **state) {
    (void)state;
    static const struct pin pins[] = {
        PIN(poolcuda_header, magic, 0, 8),
        PIN(poolcuda_header, version, 8, 4),
        PIN(poolcuda_header, header_bytes, 12, 4),
        PIN(poolcuda_header, total_bytes, 16, 8),
        PIN(poolcuda_header, pid, 24, 4),
        PIN(poolcuda_header, uid, 28, 4),
        PIN(poolcuda_header, start_ticks, 32, 8),
        PIN(poolcuda_header, pid_namespace, 40, 8),
        PIN(poolcuda_header, created_ns, 48, 8),
        PIN(poolcuda_header, created_unix_ns, 56, 8),
        PIN(poolcuda_header, heartbeat_ns, 64, 8),
        PIN(poolcuda_header, ended_ns, 72, 8),
        PIN(poolcuda_header, in_driver_since_ns, 80, 8),
        PIN(poolcuda_header, state, 88, 4),
        PIN(poolcuda_header, driver_version, 92, 4),
        PIN(poolcuda_header, runtime_only, 96, 4),
        PIN(poolcuda_header, event_next, 100, 4),
        PIN(poolcuda_header, library_version, 104, 24),
        PIN(poolcuda_header, command, 128, 64),
        PIN(poolcuda_header, config, 192, 16),
        PIN(poolcuda_header, pools, 208, 16),
        PIN(poolcuda_header, cells, 224, 16),
        PIN(poolcuda_header, events, 240, 16),
        PIN(poolcuda_header, pass_through, 256, 256),
        PIN(poolcuda_header, proc_address_lookups, 512, 8),
        PIN(poolcuda_header, symbols_hooked, 520, 8),
        PIN(poolcuda_header, fixed, 528, 16),
        PIN(poolcuda_header, map, 544, 16),
        PIN(poolcuda_header, reserved, 560, 80),
    };
    CHECK_PINS(poolcuda_header, 640, pins);
}

static void layout_of_a_configuration_entry_is_pinned(void **state) {
    (void)state;
    static const struct pin pins[] = {
        PIN(poolcuda_config_entry, name, 0, 32),
        PIN(poolcuda_config_entry, value, 32, 88),
        PIN(poolcuda_config_entry, from_environment, 120, 4),
        PIN(poolcuda_config_entry, reserved, 124, 4),
    };
    CHECK_PINS(poolcuda_config_entry, 128, pins);
}

static void layout_of_a_pool_is_pinned(void **state) {
    (void)state;
    static const struct pin pins[] = {
        PIN(poolcuda_pool, sequence, 0, 8),
        PIN(poolcuda_pool, state, 8, 4),
        PIN(poolcuda_pool, kind, 12, 4),
        PIN(poolcuda_pool, context, 16, 8),
        PIN(poolcuda_pool, generation, 24, 8),
        PIN(poolcuda_pool, device, 32, 4),
        PIN(poolcuda_pool, limited, 36, 4),
        PIN(poolcuda_pool, limit_bytes, 40, 8),
        PIN(poolcuda_pool, device_total_bytes, 48, 8),
        PIN(poolcuda_pool, max_split_bytes, 56, 8),
        PIN(poolcuda_pool, uuid, 64, 16),
        PIN(poolcuda_pool, pci, 80, 16),
        PIN(poolcuda_pool, reserved_bytes, 96, 8),
        PIN(poolcuda_pool, idle_bytes, 104, 8),
        PIN(poolcuda_pool, ordered_bytes, 112, 8),
        PIN(poolcuda_pool, waiting_bytes, 120, 8),
        PIN(poolcuda_pool, retired_bytes, 128, 8),
        PIN(poolcuda_pool, largest_free_bytes, 136, 8),
        PIN(poolcuda_pool, releasable_bytes, 144, 8),
        PIN(poolcuda_pool, segments, 152, 8),
        PIN(poolcuda_pool, free_blocks, 160, 8),
        PIN(poolcuda_pool, peak_requested_bytes, 168, 8),
        PIN(poolcuda_pool, peak_live_bytes, 176, 8),
        PIN(poolcuda_pool, peak_reserved_bytes, 184, 8),
        PIN(poolcuda_pool, peak_cached_bytes, 192, 8),
        PIN(poolcuda_pool, peak_idle_bytes, 200, 8),
        PIN(poolcuda_pool, peak_ordered_bytes, 208, 8),
        PIN(poolcuda_pool, peak_waiting_bytes, 216, 8),
        PIN(poolcuda_pool, segment_allocs, 224, 8),
        PIN(poolcuda_pool, segment_alloc_bytes, 232, 8),
        PIN(poolcuda_pool, segment_releases, 240, 8),
        PIN(poolcuda_pool, segment_release_bytes, 248, 8),
        PIN(poolcuda_pool, fences, 256, 8),
        PIN(poolcuda_pool, waits, 264, 8),
        PIN(poolcuda_pool, trims, 272, 8),
        PIN(poolcuda_pool, oom_retries, 280, 8),
        PIN(poolcuda_pool, oom_failures, 288, 8),
        PIN(poolcuda_pool, driver_ns, 296, 8),
        PIN(poolcuda_pool, miss_fences, 304, 8),
        PIN(poolcuda_pool, stream_marks, 312, 8),
        PIN(poolcuda_pool, proved_blocks, 320, 8),
        PIN(poolcuda_pool, exported_bytes, 328, 8),
        PIN(poolcuda_pool, growths, 336, 8),
        PIN(poolcuda_pool, growth_ns, 344, 8),
        PIN(poolcuda_pool, prealloc_bytes, 352, 8),
        PIN(poolcuda_pool, prealloc_unused_bytes, 360, 8),
        PIN(poolcuda_pool, fixed_free_bytes, 368, 8),
        PIN(poolcuda_pool, splits, 376, 8),
        PIN(poolcuda_pool, merges, 384, 8),
        PIN(poolcuda_pool, bad_frees, 392, 8),
        PIN(poolcuda_pool, class_cached_bytes, 400, 320),
        PIN(poolcuda_pool, hit_ns, 720, 256),
        PIN(poolcuda_pool, miss_ns, 976, 256),
        PIN(poolcuda_pool, reserved, 1232, 176),
    };
    CHECK_PINS(poolcuda_pool, 1408, pins);
}

static void layout_of_a_size_class_is_pinned(void **state) {
    (void)state;
    static const struct pin pins[] = {
        PIN(poolcuda_size_class, allocs, 0, 8),  PIN(poolcuda_size_class, alloc_bytes, 8, 8),
        PIN(poolcuda_size_class, frees, 16, 8),  PIN(poolcuda_size_class, freed_bytes, 24, 8),
        PIN(poolcuda_size_class, misses, 32, 8), PIN(poolcuda_size_class, held_bytes, 40, 8),
    };
    CHECK_PINS(poolcuda_size_class, 48, pins);
}

static void layout_of_a_cell_is_pinned(void **state) {
    (void)state;
    static const struct pin pins[] = {
        PIN(poolcuda_cell, pool, 0, 4),
        PIN(poolcuda_cell, reserved0, 4, 4),
        PIN(poolcuda_cell, sequence, 8, 8),
        PIN(poolcuda_cell, freed_requested_bytes, 16, 8),
        PIN(poolcuda_cell, alloc_requested_bytes, 24, 8),
        PIN(poolcuda_cell, driver_door, 32, 8),
        PIN(poolcuda_cell, free_waits, 40, 8),
        PIN(poolcuda_cell, waiting_bytes, 48, 8),
        PIN(poolcuda_cell, stream, 56, 8),
        PIN(poolcuda_cell, thread, 64, 8),
        PIN(poolcuda_cell, reserved, 72, 56),
        PIN(poolcuda_cell, classes, 128, 1920),
    };
    CHECK_PINS(poolcuda_cell, 2048, pins);
}

static void layout_of_a_fixed_size_pool_is_pinned(void **state) {
    (void)state;
    static const struct pin pins[] = {
        PIN(poolcuda_fixed, pool, 0, 4),         PIN(poolcuda_fixed, reserved0, 4, 4),
        PIN(poolcuda_fixed, size_bytes, 8, 8),   PIN(poolcuda_fixed, asked_blocks, 16, 8),
        PIN(poolcuda_fixed, blocks, 24, 8),      PIN(poolcuda_fixed, in_use, 32, 8),
        PIN(poolcuda_fixed, peak_in_use, 40, 8), PIN(poolcuda_fixed, hits, 48, 8),
        PIN(poolcuda_fixed, misses, 56, 8),
    };
    CHECK_PINS(poolcuda_fixed, 64, pins);
}

static void layout_of_a_cell_of_the_map_is_pinned(void **state) {
    (void)state;
    static const struct pin pins[] = {
        PIN(poolcuda_map_cell, live, 0, 1),       PIN(poolcuda_map_cell, idle, 1, 1),
        PIN(poolcuda_map_cell, ordered, 2, 1),    PIN(poolcuda_map_cell, waiting, 3, 1),
        PIN(poolcuda_map_cell, fixed, 4, 1),      PIN(poolcuda_map_cell, kept, 5, 1),
        PIN(poolcuda_map_cell, size_class, 6, 1), PIN(poolcuda_map_cell, blocks, 7, 1),
    };
    CHECK_PINS(poolcuda_map_cell, 8, pins);
}

static void layout_of_a_row_of_the_map_is_pinned(void **state) {
    (void)state;
    static const struct pin pins[] = {
        PIN(poolcuda_map_row, pool, 0, 4),           PIN(poolcuda_map_row, kind, 4, 4),
        PIN(poolcuda_map_row, sequence, 8, 8),       PIN(poolcuda_map_row, address, 16, 8),
        PIN(poolcuda_map_row, size_bytes, 24, 8),    PIN(poolcuda_map_row, began_ns, 32, 8),
        PIN(poolcuda_map_row, refreshed_ns, 40, 8),  PIN(poolcuda_map_row, live_bytes, 48, 8),
        PIN(poolcuda_map_row, idle_bytes, 56, 8),    PIN(poolcuda_map_row, ordered_bytes, 64, 8),
        PIN(poolcuda_map_row, waiting_bytes, 72, 8), PIN(poolcuda_map_row, fixed_bytes, 80, 8),
        PIN(poolcuda_map_row, kept_bytes, 88, 8),    PIN(poolcuda_map_row, largest_free_bytes, 96, 8),
        PIN(poolcuda_map_row, live_blocks, 104, 4),  PIN(poolcuda_map_row, free_blocks, 108, 4),
        PIN(poolcuda_map_row, reserved, 112, 16),    PIN(poolcuda_map_row, cells, 128, 512),
    };
    CHECK_PINS(poolcuda_map_row, 640, pins);
}

static void layout_of_an_event_is_pinned(void **state) {
    (void)state;
    static const struct pin pins[] = {
        PIN(poolcuda_event, sequence, 0, 8),
        PIN(poolcuda_event, time_ns, 8, 8),
        PIN(poolcuda_event, type, 16, 4),
        PIN(poolcuda_event, device, 20, 4),
        PIN(poolcuda_event, pool, 24, 4),
        PIN(poolcuda_event, reason, 28, 4),
        PIN(poolcuda_event, requested_bytes, 32, 8),
        PIN(poolcuda_event, live_bytes, 40, 8),
        PIN(poolcuda_event, cached_bytes, 48, 8),
        PIN(poolcuda_event, largest_free_bytes, 56, 8),
        PIN(poolcuda_event, device_free_bytes, 64, 8),
        PIN(poolcuda_event, fragmentation_ppm, 72, 4),
        PIN(poolcuda_event, kind, 76, 4),
        PIN(poolcuda_event, address, 80, 8),
        PIN(poolcuda_event, reserved, 88, 40),
    };
    CHECK_PINS(poolcuda_event, 128, pins);
}

static void numbers_of_the_contract_are_pinned(void **state) {
    (void)state;
    assert_memory_equal(POOLCUDA_MAGIC, "POOLCUDA", 8);
    assert_string_equal(POOLCUDA_SHM_PREFIX, "poolcuda-");
    assert_int_equal(POOLCUDA_LAYOUT_VERSION, 2);
    assert_int_equal(POOLCUDA_SHM_MAX_BYTES, 524288);
    assert_int_equal(POOLCUDA_SIZE_CLASSES, 40);
    assert_int_equal(POOLCUDA_LATENCY_BUCKETS, 32);
    assert_int_equal(POOLCUDA_LATENCY_SAMPLE, 64);
    assert_int_equal(POOLCUDA_KIND_PLAIN, 1);
    assert_int_equal(POOLCUDA_KIND_ASYNC, 2);
    assert_int_equal(POOLCUDA_STARTING, 0);
    assert_int_equal(POOLCUDA_RUNNING, 1);
    assert_int_equal(POOLCUDA_ENDED, 2);
    assert_int_equal(POOLCUDA_POOL_UNUSED, 0);
    assert_int_equal(POOLCUDA_POOL_OPEN, 1);
    assert_int_equal(POOLCUDA_POOL_GONE, 2);
    assert_int_equal(POOLCUDA_OOM_NONE, 0);
    assert_int_equal(POOLCUDA_OOM_DRIVER, 1);
    assert_int_equal(POOLCUDA_OOM_LIMIT, 2);
    assert_int_equal(POOLCUDA_MAP_CELLS, 64);
    assert_int_equal(POOLCUDA_MAP_PARTS, 255);
    assert_int_equal(POOLCUDA_MAP_ORDINARY, 0);
    assert_int_equal(POOLCUDA_MAP_PREALLOCATED, 1);
    assert_int_equal(POOLCUDA_MAP_FIXED, 2);
}

#define NAME_OF(name, help) #name,

static void check_order(const char *const *names, size_t count, const char *const *pinned, size_t pinned_count) {
    assert_int_equal(count, pinned_count);
    for (size_t i = 0; i < count; i++) assert_string_equal(names[i], pinned[i]);
}

/* The position in the list is the number in the segment. New ones go to the end. */
static void order_of_pass_reasons_is_pinned(void **state) {
    (void)state;
    static const char *const names[] = {POOLCUDA_PASS_REASONS(NAME_OF)};
    static const char *const pinned[] = {"disabled",       "forked",  "no_context",     "created_context",
                                         "closed_context", "capture", "async",          "zero_or_null",
                                         "foreign",        "tool",    "no_host_memory", "no_driver"};
    check_order(names, POOLCUDA_PASS_COUNT, pinned, sizeof pinned / sizeof pinned[0]);
    assert_int_equal(POOLCUDA_PASS_disabled, 0);
}

static void order_of_event_types_is_pinned(void **state) {
    (void)state;
    static const char *const names[] = {POOLCUDA_EVENT_TYPES(NAME_OF)};
    static const char *const pinned[] = {"growth", "release",  "trim",  "oom_retry",
                                         "oom",    "fallback", "reset", "bad_free"};
    check_order(names, POOLCUDA_EVENT_COUNT - 1, pinned, sizeof pinned / sizeof pinned[0]);
    assert_int_equal(POOLCUDA_EVENT_growth, 1);
}

#define VARIABLE_NAME(name, ...) #name,

static void names_of_variables_fit_their_entry(void **state) {
    (void)state;
    static const char *const names[] = {POOLCUDA_VARIABLES(VARIABLE_NAME)};
    const size_t count = sizeof names / sizeof names[0], room = sizeof(((struct poolcuda_config_entry *)0)->name);
    assert_in_range(count, 1, POOLCUDA_MAX_CONFIG);
    for (size_t i = 0; i < count; i++) assert_in_range(strlen(names[i]), 1, room - 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(layout_of_a_section_is_pinned),
    cmocka_unit_test(layout_of_a_header_is_pinned),
    cmocka_unit_test(layout_of_a_configuration_entry_is_pinned),
    cmocka_unit_test(layout_of_a_pool_is_pinned),
    cmocka_unit_test(layout_of_a_size_class_is_pinned),
    cmocka_unit_test(layout_of_a_cell_is_pinned),
    cmocka_unit_test(layout_of_a_fixed_size_pool_is_pinned),
    cmocka_unit_test(layout_of_a_cell_of_the_map_is_pinned),
    cmocka_unit_test(layout_of_a_row_of_the_map_is_pinned),
    cmocka_unit_test(layout_of_an_event_is_pinned),
    cmocka_unit_test(numbers_of_the_contract_are_pinned),
    cmocka_unit_test(order_of_pass_reasons_is_pinned),
    cmocka_unit_test(order_of_event_types_is_pinned),
    cmocka_unit_test(names_of_variables_fit_their_entry),
};

TESTING_MAIN(tests)
