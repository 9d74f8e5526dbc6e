/* SPDX-License-Identifier: MIT
 *
 * Sizes as people write them, and what is none.
 */
#include "testing.h"

#include "poolstat/size.h"

static void sizes_are_read_exactly(void **state) {
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"0", 0},
        {"1", 1},
        {"1000", 1000},
        {"12B", 12},
        {"1KiB", 1024},
        {"1k", 1024},
        {"512MiB", UINT64_C(512) << 20},
        {"512mib", UINT64_C(512) << 20},
        {"1.5GiB", UINT64_C(3) << 29},
        {"0.25M", UINT64_C(1) << 18},
        {"2.000000001T", (UINT64_C(2) << 40) + 1099},
        {"8388607TiB", UINT64_C(8388607) << 40},
        {"9223372036854775807", INT64_MAX},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t bytes = 7;
        if (!size_parse(cases[i].text, &bytes) || bytes != cases[i].bytes)
            fail_msg("'%s' is %llu, not %llu", cases[i].text, (unsigned long long)bytes,
                     (unsigned long long)cases[i].bytes);
    }
}

static void what_is_no_size_is_refused(void **state) {
    static const char *const cases[] = {"",
                                        " 1",
                                        "1 ",
                                        "-1",
                                        "+1",
                                        "x",
                                        "1x",
                                        "1.GiB",
                                        ".5GiB",
                                        "1.5",
                                        "1.5B",
                                        "1GiBx",
                                        "1 GiB",
                                        "1MB",
                                        "0x10",
                                        "1e3",
                                        "1,5G",
                                        "none",
                                        "1.5.5G",
                                        "1KiBKiB",
                                        "8388608TiB",
                                        "9223372036854775808",
                                        "99999999999999999999999",
                                        "1.0000000001G"};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t bytes = 7;
        if (size_parse(cases[i], &bytes)) fail_msg("'%s' was taken for %llu", cases[i], (unsigned long long)bytes);
        assert_int_equal(bytes, 7);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(sizes_are_read_exactly),
    cmocka_unit_test(what_is_no_size_is_refused),
};

TESTING_MAIN(tests)
