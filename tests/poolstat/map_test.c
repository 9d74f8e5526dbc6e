/* SPDX-License-Identifier: MIT
 *
 * The block map between the segment and the screen: rows that their owner writes to, or that are wrong, and what
 * becomes of cells.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "testing.h"

#include "poolstat/map_model.h"
#include "poolstat/segment_map.h"

#define MIB (UINT64_C(1) << 20)
#define ROWS 6u

static struct image { struct poolcuda_map_row rows[ROWS]; } image;

/* A clock that goes by looks at it, so that a busy machine makes no copy late. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *now); /* NOLINT(bugprone-reserved-identifier) */

int __wrap_clock_gettime(clockid_t clock, struct timespec *now) { /* NOLINT(bugprone-reserved-identifier) */
    static long ns;
    (void)clock;
    *now = (struct timespec){.tv_sec = 1, .tv_nsec = ns += 1000};
    return 0;
}

/* What the owner does once `reads` pieces have been read. */
static void (*owner)(unsigned reads);
static unsigned reads;

static enum segment_result read_image(const void *source, void *to, uint64_t size, uint64_t offset) {
    assert_true(offset + size <= sizeof(image));
    memcpy(to, (const char *)source + offset, size);
    if (owner != NULL) owner(++reads);
    return SEGMENT_READ;
}

/* All of `whole` MiB live, but the last quarter, which is idle. */
static struct poolcuda_map_row row_of(uint32_t pool, uint64_t address, uint64_t whole) {
    struct poolcuda_map_row row = {.pool = pool,
                                   .address = address,
                                   .size_bytes = whole * MIB,
                                   .began_ns = 900,
                                   .refreshed_ns = 1000,
                                   .live_bytes = whole * MIB / 4 * 3,
                                   .idle_bytes = whole * MIB / 4,
                                   .largest_free_bytes = whole * MIB / 4};
    for (unsigned i = 0; i < POOLCUDA_MAP_CELLS; i++) {
        const bool live = i < POOLCUDA_MAP_CELLS / 4 * 3;
        row.cells[i] = (struct poolcuda_map_cell){.live = live ? 255 : 0, .idle = live ? 0 : 255, .size_class = 11};
    }
    return row;
}

static struct segment_pool pools[2];

static struct segment *read_map(void) {
    static struct segment segment;
    segment = (struct segment){.pools = pools, .pool_count = 2, .read_ns = 3000000000};
    pools[0] = (struct segment_pool){.number = 1, .record = {.segments = 3, .reserved_bytes = 64 * MIB}};
    pools[1] = (struct segment_pool){.number = 3};
    segment.header.map = (struct poolcuda_section){.count = ROWS, .stride = sizeof(struct poolcuda_map_row)};
    reads = 0;
    assert_int_equal(segment_map_read(&segment, read_image, &image), SEGMENT_READ);
    return &segment;
}

static int make_image(void **state) {
    (void)state;
    memset(&image, 0, sizeof(image));
    owner = NULL;
    image.rows[0] = row_of(1, 64 * MIB, 16);
    image.rows[1] = row_of(3, 512 * MIB, 32);
    image.rows[3] = row_of(1, 16 * MIB, 8);
    return 0;
}

static void rows_are_told_by_pool_and_address(void **state) {
    (void)state;
    struct segment *segment = read_map();
    assert_int_equal(segment->map_count, 3);
    assert_false(pools[0].map_approximate);
    assert_int_equal(segment->map[0].address, 16 * MIB);
    assert_int_equal(segment->map[1].address, 64 * MIB);
    assert_int_equal(segment->map[2].pool, 3);
    free(segment->map);
}

static void no_section_is_no_map(void **state) {
    (void)state;
    struct segment segment = {.header.map = {.offset = 7, .stride = UINT32_MAX}};
    assert_int_equal(segment_map_read(&segment, NULL, NULL), SEGMENT_READ);
    assert_int_equal(segment.map_count, 0);
    free(segment.map);
}

/* A row that is written between the look at its number and the copy. */
static void write_once(unsigned count) {
    struct poolcuda_map_row *row = &image.rows[0];
    if (count == 1) row->sequence++;
    if (count == 2) row->live_bytes -= MIB; /* half of it is in the copy */
    if (count == 3) {
        row->idle_bytes += MIB;
        row->sequence++;
    }
}

static void what_is_written_meanwhile_is_copied_again(void **state) {
    (void)state;
    owner = write_once;
    struct segment *segment = read_map();
    assert_int_equal(segment->map_count, 3);
    assert_false(pools[0].map_approximate);
    assert_int_equal(segment->map[1].live_bytes, 11 * MIB);
    assert_int_equal(segment->map[1].idle_bytes, 5 * MIB);
    assert_int_equal(segment->map[1].sequence, 2);
    assert_true(reads > 3);
    free(segment->map);
}

static void write_for_ever(unsigned count) {
    (void)count;
    image.rows[0].sequence += 2;
}

static void what_never_rests_is_approximate(void **state) {
    (void)state;
    owner = write_for_ever;
    struct segment *segment = read_map();
    assert_int_equal(segment->map_count, 3);
    assert_true(pools[0].map_approximate);
    assert_false(pools[1].map_approximate);
    free(segment->map);
}

static void rows_that_cannot_be_are_left_out(void **state) {
    (void)state;
    static const struct poolcuda_map_row good = {.pool = 1, .address = MIB, .size_bytes = MIB, .live_bytes = MIB};
    struct poolcuda_map_row bad[13];
    for (unsigned i = 0; i < 13; i++) bad[i] = good;
    bad[0].live_bytes = MIB + 1;
    bad[1].idle_bytes = 1;
    bad[2].kept_bytes = UINT64_MAX;
    bad[3].size_bytes = bad[3].live_bytes = 0;
    bad[4].address = UINT64_MAX;
    bad[5].kind = 3;
    bad[6].largest_free_bytes = MIB + 1;
    bad[7].began_ns = 1;
    bad[8].cells[63] = (struct poolcuda_map_cell){.live = 200, .kept = 56};
    bad[9].cells[5].size_class = POOLCUDA_SIZE_CLASSES + 1;
    bad[10].pool = 2; /* no open one */
    bad[11].pool = UINT32_MAX;
    bad[12].pool = 0;
    for (unsigned i = 0; i < 13; i++) {
        make_image(NULL);
        image.rows[2] = bad[i];
        struct segment *segment = read_map();
        assert_int_equal(segment->map_count, 3);
        if (pools[0].map_approximate != (i < 10)) fail_msg("row %u", i);
        free(segment->map);
    }
    make_image(NULL);
    image.rows[2] = good;
    struct segment *segment = read_map();
    assert_int_equal(segment->map_count, 4);
    free(segment->map);
}

/* ---- the model ---- */

static void sums_and_what_is_left_out_are_a_pools(void **state) {
    (void)state;
    struct segment *segment = read_map();
    struct map map;
    map_make(segment, &pools[0], &map);
    assert_int_equal(map.count, 2);
    assert_int_equal(map.bytes[MAP_live], 18 * MIB);
    assert_int_equal(map.bytes[MAP_idle], 6 * MIB);
    assert_int_equal(map.bytes[MAP_unused], 0);
    assert_int_equal(map.left_out_segments, 1);
    assert_int_equal(map.left_out_bytes, 40 * MIB);
    assert_int_equal(map.age_ns, 2999999000);
    assert_true(map.outdated); /* nothing is live, by the figures */
    map_free(&map);
    /* Fewer segments than rows, which is no consistent copy: nothing is negative. */
    pools[1].record.segments = 0;
    map_make(segment, &pools[1], &map);
    assert_int_equal(map.left_out_segments, 0);
    assert_int_equal(map.left_out_bytes, 0);
    map_free(&map);
    free(segment->map);
}

static void a_map_that_shows_what_is_live_now_is_not_outdated(void **state) {
    (void)state;
    struct poolcuda_cell cell = {.pool = 1};
    struct segment *segment = read_map();
    struct map map;
    pools[0].cells = &cell;
    pools[0].cell_count = 1;
    cell.classes[10].alloc_bytes = cell.classes[10].held_bytes = 18 * MIB;
    map_make(segment, &pools[0], &map);
    assert_int_equal(map.live_now, 18 * MIB);
    assert_false(map.outdated);
    map_free(&map);
    cell.classes[10].alloc_bytes = cell.classes[10].held_bytes = 20 * MIB; /* in the segment without a row, perhaps */
    map_make(segment, &pools[0], &map);
    assert_false(map.outdated);
    map_free(&map);
    pools[0].record.segments = 2;
    map_make(segment, &pools[0], &map);
    assert_true(map.outdated);
    map_free(&map);
    segment->read_ns = 1000000000; /* so young that the program may just be at work */
    map_make(segment, &pools[0], &map);
    assert_false(map.outdated);
    map_free(&map);
    free(segment->map);
}

static struct map_segment segment_with(const struct poolcuda_map_row *row) {
    struct segment segment = {.map = (struct poolcuda_map_row *)row, .map_count = 1};
    struct segment_pool pool = {.number = row->pool};
    struct map map;
    map_make(&segment, &pool, &map);
    assert_int_equal(map.count, 1);
    const struct map_segment made = map.segments[0];
    map_free(&map);
    return made;
}

static void cells_have_the_letter_of_most_of_them(void **state) {
    (void)state;
    struct poolcuda_map_row row = row_of(1, MIB, 16);
    row.cells[0] = (struct poolcuda_map_cell){.live = 100, .idle = 155};
    row.cells[1] = (struct poolcuda_map_cell){.waiting = 254, .kept = 1};
    row.cells[2] = (struct poolcuda_map_cell){.ordered = 255, .size_class = 1};
    row.cells[3] = (struct poolcuda_map_cell){0};
    row.cells[4] = (struct poolcuda_map_cell){.live = 100, .size_class = 40};
    row.cells[5] = (struct poolcuda_map_cell){.fixed = 255, .size_class = 36, .blocks = 255};
    row.cells[6] = (struct poolcuda_map_cell){.kept = 255, .size_class = 37, .blocks = 254};
    const struct map_segment segment = segment_with(&row);
    static const char states[] = "iwO.:FK", classes[] = "  0 +z+";
    for (unsigned i = 0; i < sizeof(states) - 1; i++) {
        assert_int_equal(map_letter(&segment.cells[i]), states[i]);
        assert_int_equal(map_class_letter(&segment.cells[i]), classes[i]);
    }
    assert_int_equal(segment.cells[3].parts[MAP_unused], 255);
    assert_int_equal(segment.cells[4].parts[MAP_unused], 155);
    assert_true(segment.cells[5].many);
    assert_false(segment.cells[6].many);
}

static void neighbours_are_put_together_where_there_is_little_room(void **state) {
    (void)state;
    struct poolcuda_map_row row = row_of(1, MIB, 16);
    row.cells[1] = (struct poolcuda_map_cell){.idle = 255, .size_class = 5, .blocks = 2};
    row.cells[2] = (struct poolcuda_map_cell){.idle = 155, .live = 100, .size_class = 9, .blocks = 3};
    const struct map_segment segment = segment_with(&row);
    static const struct {
        size_t columns, cells;
    } cases[] = {{200, 64}, {64, 64}, {63, 32}, {20, 16}, {3, 2}, {1, 1}, {0, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct map_cell cells[POOLCUDA_MAP_CELLS];
        unsigned whole = 0, idle = 0;
        assert_int_equal(map_scale(&segment, cases[i].columns, cells), cases[i].cells);
        for (size_t k = 0; k < cases[i].cells; k++) {
            whole += cells[k].whole;
            idle += cells[k].parts[MAP_idle];
        }
        assert_int_equal(whole, POOLCUDA_MAP_CELLS * 255);
        assert_int_equal(idle, 16 * 255 + 255 + 155); /* nothing is lost */
    }
    struct map_cell cells[POOLCUDA_MAP_CELLS];
    map_scale(&segment, 16, cells);
    assert_int_equal(cells[0].blocks, 5);
    assert_int_equal(cells[0].size_class, 10);
    assert_int_equal(map_letter(&cells[0]), 'l');
    assert_int_equal(map_letter(&cells[1]), 'L');
    assert_int_equal(map_letter(&cells[15]), 'I');
}

static void places_of_cells_fill_any_segment(void **state) {
    (void)state;
    static const uint64_t sizes[] = {1, 63, 64, 512, 100 * MIB + 512, UINT64_MAX / 2};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const struct poolcuda_map_row row = {.size_bytes = sizes[i]};
        const struct map_segment segment = {.row = &row};
        assert_int_equal(map_place(&segment, 0), 0);
        assert_int_equal(map_place(&segment, POOLCUDA_MAP_CELLS), sizes[i]);
        for (size_t k = 0; k < POOLCUDA_MAP_CELLS; k++)
            assert_true(map_place(&segment, k) <= map_place(&segment, k + 1));
    }
}

#define CASE(name) cmocka_unit_test_setup(name, make_image)
static const struct CMUnitTest tests[] = {
    CASE(rows_are_told_by_pool_and_address),
    CASE(no_section_is_no_map),
    CASE(what_is_written_meanwhile_is_copied_again),
    CASE(what_never_rests_is_approximate),
    CASE(rows_that_cannot_be_are_left_out),
    CASE(sums_and_what_is_left_out_are_a_pools),
    CASE(a_map_that_shows_what_is_live_now_is_not_outdated),
    CASE(cells_have_the_letter_of_most_of_them),
    CASE(neighbours_are_put_together_where_there_is_little_room),
    CASE(places_of_cells_fill_any_segment),
};

TESTING_MAIN(tests)
