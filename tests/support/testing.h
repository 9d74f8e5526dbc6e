/* SPDX-License-Identifier: MIT
 *
 * The main function of every C test program: TAP on stdout, `--list` prints the names of the cases, `--only PATTERN…`
 * runs those that match one.
 */
#ifndef POOLCUDA_TESTING_H
#define POOLCUDA_TESTING_H

#include <fnmatch.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static inline bool testing_is_chosen(const char *name, int argc, char **argv) {
    if (argc < 3 || strcmp(argv[1], "--only") != 0) return true;
    for (int i = 2; i < argc; i++)
        if (fnmatch(argv[i], name, 0) == 0) return true;
    return false;
}

static inline int testing_main(const struct CMUnitTest *tests, size_t count, int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < count; i++) puts(tests[i].name);
        return 0;
    }
    struct CMUnitTest *chosen = (struct CMUnitTest *)calloc(count, sizeof *chosen);
    size_t chosen_count = 0;
    for (size_t i = 0; i < count; i++)
        if (testing_is_chosen(tests[i].name, argc, argv)) chosen[chosen_count++] = tests[i];
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const int failed = _cmocka_run_group_tests("tests", chosen, chosen_count, NULL, NULL);
    free(chosen);
    return failed;
}

#define TESTING_MAIN(tests)                                                         \
    int main(int argc, char **argv) {                                               \
        return testing_main(tests, sizeof(tests) / sizeof((tests)[0]), argc, argv); \
    }

#endif
