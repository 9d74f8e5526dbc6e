/* SPDX-License-Identifier: MIT
 *
 * Numbers, strings, tables and measures by themselves.
 */
#include <math.h>
#include <stdlib.h>

#include "testing.h"

#include "poolstat/derive.h"
#include "poolstat/grid.h"
#include "poolstat/text.h"

static void bytes_have_three_digits_and_a_unit(void **state) {
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {{0, "0 B"},
                 {1023, "1023 B"},
                 {1024, "1.00 KiB"},
                 {10230, "9.99 KiB"},
                 {10240, "10.0 KiB"},
                 {102348, "99.9 KiB"},
                 {102400, "100 KiB"},
                 {1048063, "1023 KiB"},
                 {1048064, "1.00 MiB"},
                 {UINT64_C(1) << 30, "1.00 GiB"},
                 {UINT64_C(141) << 30, "141 GiB"},
                 {UINT64_MAX - 1, "16.0 EiB"},
                 {TEXT_UNKNOWN, "-"}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(text_bytes(cases[i].bytes).s, cases[i].text);
}

static void durations_have_a_fitting_unit(void **state) {
    static const struct {
        uint64_t ns;
        const char *text;
    } cases[] = {{0, "0 ns"},
                 {999, "999 ns"},
                 {1000, "1.00 us"},
                 {999499, "999 us"},
                 {999500, "1.00 ms"},
                 {4560000000u, "4.56 s"},
                 {UINT64_C(59999999999), "60.0 s"},
                 {UINT64_C(192) * 1000000000, "3m12s"},
                 {UINT64_C(11100) * 1000000000, "3h05m"},
                 {UINT64_C(187200) * 1000000000, "2d04h"},
                 {TEXT_UNKNOWN, "-"}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(text_duration(cases[i].ns).s, cases[i].text);
}

static void ratios_and_versions_are_written_as_people_do(void **state) {
    (void)state;
    assert_string_equal(text_ratio(0.9871).s, "98.7%");
    assert_string_equal(text_ratio(1).s, "100.0%");
    assert_string_equal(text_ratio(0.99999).s, ">99.9%");
    assert_string_equal(text_ratio(0).s, "0.0%");
    assert_string_equal(text_ratio(0.00001).s, "<0.1%");
    assert_string_equal(text_ratio(NAN).s, "-");
    assert_string_equal(text_cuda(12080).s, "12.8");
    assert_string_equal(text_cuda(0).s, "-");
}

static void expect_safe(const char *bytes, size_t size, const char *wanted) {
    char *safe = text_safe(bytes, size);
    assert_string_equal(safe, wanted);
    free(safe);
}

static void strings_are_safe_to_print(void **state) {
    (void)state;
    expect_safe("plain text", 64, "plain text");
    expect_safe("no terminator", 2, "no");
    expect_safe("tab\tbell\a", 64, "tab\\x09bell\\x07");
    expect_safe("\x1b]0;title\x07", 64, "\\x1b]0;title\\x07");
    expect_safe("back\\slash", 64, "back\\\\slash");
    expect_safe("\x7f\xc2\x9b", 64, "\\x7f\\u{9b}");
    expect_safe("gr\xc3\xbc\xc3\x9f", 64, "gr\xc3\xbc\xc3\x9f");
    expect_safe("cut \xc3\xbc", 5, "cut \\xc3");
    expect_safe("\xc0\xaf\xed\xa0\x80\xf5", 64, "\\xc0\\xaf\\xed\\xa0\\x80\\xf5");
    expect_safe("\xe2\x80\xae\xe2\x80\x8b", 64, "\\u{202e}\\u{200b}");
    expect_safe("\xf0\x9f\x9a\x80", 64, "\xf0\x9f\x9a\x80");
}

static void width_counts_columns_and_cutting_marks(void **state) {
    char wide[] = "\xe6\xbc\xa2\xe5\xad\x97 ok", narrow[] = "caf\xc3\xa9 noir";
    (void)state;
    assert_int_equal(text_width(wide), 7);
    text_cut(wide, 4);
    assert_string_equal(wide, "\xe6\xbc\xa2+");
    text_cut(narrow, 9);
    assert_string_equal(narrow, "caf\xc3\xa9 noir");
    text_cut(narrow, 5);
    assert_string_equal(narrow, "caf\xc3\xa9+");
}

static void label_is_a_name_without_its_unit(void **state) {
    static const char *const cases[][2] = {
        {"peak_live_bytes", "peak live"}, {"driver_ns", "driver"}, {"allocs", "allocs"}, {"_ns", " ns"}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *label = text_label(cases[i][0]);
        assert_string_equal(label, cases[i][1]);
        free(label);
    }
}

static void grid_aligns_and_cuts_first_what_is_elastic(void **state) {
    char *text = NULL;
    size_t size;
    (void)state;
    for (size_t width = 0; width <= 20; width += 10) {
        struct grid grid = {0};
        FILE *out = open_memstream(&text, &size);
        grid_column(&grid, "N", GRID_RIGHT);
        grid_elastic_column(&grid, "NAME", GRID_LEFT);
        grid_column(&grid, "SIZE", GRID_RIGHT);
        static const char *const cells[] = {"7", "a rather long name", "1 KiB", "123", "b", "10 MiB"};
        for (size_t i = 0; i < 6; i++) grid_put(&grid, cells[i]);
        assert_int_equal(grid_rows(&grid), 2);
        grid_print(&grid, out, 1, width, true);
        fclose(out);
        assert_string_equal(text, width == 0    ? "   N  NAME                  SIZE\n"
                                                  "   7  a rather long name   1 KiB\n"
                                                  " 123  b                   10 MiB\n"
                                  : width == 20 ? "   N  NAME      SIZE\n"
                                                  "   7  a rat+   1 KiB\n"
                                                  " 123  b       10 MiB\n"
                                                : "   N\n"
                                                  "   7\n"
                                                  " 123\n");
        free(text);
    }
}

static void measures_are_never_negative_and_never_wrap(void **state) {
    struct poolcuda_pool figures = {.idle_bytes = UINT64_MAX,
                                    .ordered_bytes = 5,
                                    .largest_free_bytes = UINT64_MAX,
                                    .releasable_bytes = UINT64_MAX,
                                    .reserved_bytes = UINT64_MAX};
    struct counters counters = {.freed_live_bytes = 9, .alloc_live_bytes = 8, .allocs = 1, .hits = 2};
    struct measures measures;
    (void)state;
    derive_measures(&figures, &counters, &measures);
    assert_true(measures.live_bytes == 0);
    assert_true(measures.cached_bytes == UINT64_MAX);
    assert_true(measures.stranded_bytes == 0);
    assert_true(measures.hit_rate == 1);
    assert_true(measures.external_fragmentation == 0);
    assert_true(isnan(measures.internal_fragmentation));
    assert_true(isnan(measures.peak_utilisation));
}

static void no_measure_is_more_than_what_it_is_part_of(void **state) {
    const struct counters counters = {.alloc_live_bytes = 90, .alloc_requested_bytes = 95};
    struct poolcuda_pool figures = {
        .reserved_bytes = 80, .idle_bytes = 20, .waiting_bytes = 5, .peak_live_bytes = 70, .peak_requested_bytes = 66};
    struct measures measures;
    (void)state;
    derive_measures(&figures, &counters, &measures);
    assert_true(measures.live_bytes == 70);
    assert_true(measures.requested_bytes == 66);
    assert_true(measures.cached_bytes == 10);
    figures.peak_live_bytes = figures.peak_requested_bytes = 100;
    derive_measures(&figures, &counters, &measures);
    assert_true(measures.live_bytes == 80);
    assert_true(measures.requested_bytes == 80);
    assert_true(measures.cached_bytes == 0);
}

static void an_approximate_copy_raises_no_peak(void **state) {
    struct poolcuda_cell cell = {.alloc_requested_bytes = 7, .waiting_bytes = 5};
    cell.classes[2] = (struct poolcuda_size_class){.alloc_bytes = 8, .held_bytes = 20};
    struct segment_pool pool = {
        .record = {.reserved_bytes = 30, .idle_bytes = 10, .peak_live_bytes = 6}, .cells = &cell, .cell_count = 1};
    struct poolcuda_pool figures;
    (void)state;
    derive_figures(&pool, &figures);
    assert_true(figures.peak_live_bytes == 8 && figures.peak_requested_bytes == 7);
    assert_true(figures.peak_reserved_bytes == 30 && figures.peak_cached_bytes == 22);
    assert_true(figures.peak_idle_bytes == 17 && figures.peak_waiting_bytes == 5);
    pool.approximate = true;
    derive_figures(&pool, &figures);
    assert_true(figures.idle_bytes == 17 && figures.waiting_bytes == 5);
    assert_true(figures.peak_live_bytes == 6 && figures.peak_requested_bytes == 0);
    assert_true(figures.peak_reserved_bytes == 0 && figures.peak_cached_bytes == 0);
    assert_true(figures.peak_idle_bytes == 0 && figures.peak_waiting_bytes == 0);
}

static void what_cells_add_is_never_negative_and_never_wraps(void **state) {
    struct poolcuda_cell cells[] = {
        {.waiting_bytes = 9, .driver_door = 7, .free_waits = UINT64_MAX},
        {.stream = 3, .waiting_bytes = UINT64_MAX},
    };
    cells[0].classes[2] = (struct poolcuda_size_class){.allocs = 4, .misses = 5, .alloc_bytes = 20, .held_bytes = 25};
    cells[1].classes[2] = (struct poolcuda_size_class){.freed_bytes = 8, .held_bytes = UINT64_MAX};
    struct segment_pool pool = {.record = {.waits = 2, .idle_bytes = 1, .ordered_bytes = 6, .peak_ordered_bytes = 5},
                                .cells = cells,
                                .cell_count = 2};
    struct poolcuda_pool figures;
    struct counters counters;
    struct class_sum class;
    (void)state;
    derive_figures(&pool, &figures);
    assert_true(figures.idle_bytes == 1); /* the first holds less than is live and waits */
    assert_true(figures.ordered_bytes == 6);
    assert_true(figures.peak_ordered_bytes == 6);
    assert_true(figures.waiting_bytes == UINT64_MAX);
    assert_true(figures.peak_cached_bytes == UINT64_MAX);
    assert_true(figures.waits == UINT64_MAX);
    pool.approximate = true; /* then the sums make no peak */
    derive_figures(&pool, &figures);
    assert_true(figures.ordered_bytes == 6);
    assert_true(figures.peak_ordered_bytes == 5);
    assert_true(figures.peak_cached_bytes == 0);
    derive_counters(&pool, &counters);
    assert_true(counters.hits == 0);
    assert_true(counters.runtime_door == 0);
    assert_true(derive_class(&pool, 2, &class));
    assert_true(class.live_bytes == 20);
    assert_true(class.cached_bytes == UINT64_MAX);
    assert_true(class.hits == 0);
    assert_false(derive_class(&pool, 3, &class));
}

static void an_age_is_known_or_not(void **state) {
    const struct segment segment = {.read_ns = 100};
    (void)state;
    assert_true(derive_age(&segment, 40) == 60);
    assert_true(derive_age(&segment, 100) == 0);
    assert_true(derive_age(&segment, 150) == UINT64_MAX); /* noted after the copy was made */
    assert_true(derive_age(&segment, 0) == UINT64_MAX);
}

static void bounds_of_classes_and_buckets_are_those_of_the_layout(void **state) {
    (void)state;
    assert_true(derive_class_bytes(0) == 512);
    assert_true(derive_class_bytes(11) == UINT64_C(1) << 20);
    assert_true(derive_class_bytes(POOLCUDA_SIZE_CLASSES - 1) == UINT64_MAX);
    assert_true(derive_bucket_start(0) == 0);
    assert_true(derive_bucket_end(0) == 2);
    assert_true(derive_bucket_start(10) == 1024);
    assert_true(derive_bucket_end(POOLCUDA_LATENCY_BUCKETS - 1) == UINT64_MAX);
}

static int use_utf8(void **state) {
    (void)state;
    text_start();
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(bytes_have_three_digits_and_a_unit),
    cmocka_unit_test(durations_have_a_fitting_unit),
    cmocka_unit_test(ratios_and_versions_are_written_as_people_do),
    cmocka_unit_test_setup(strings_are_safe_to_print, use_utf8),
    cmocka_unit_test_setup(width_counts_columns_and_cutting_marks, use_utf8),
    cmocka_unit_test(label_is_a_name_without_its_unit),
    cmocka_unit_test(grid_aligns_and_cuts_first_what_is_elastic),
    cmocka_unit_test(measures_are_never_negative_and_never_wrap),
    cmocka_unit_test(no_measure_is_more_than_what_it_is_part_of),
    cmocka_unit_test(an_approximate_copy_raises_no_peak),
    cmocka_unit_test(what_cells_add_is_never_negative_and_never_wraps),
    cmocka_unit_test(an_age_is_known_or_not),
    cmocka_unit_test(bounds_of_classes_and_buckets_are_those_of_the_layout),
};

TESTING_MAIN(tests)
