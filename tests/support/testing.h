/* SPDX-License-Identifier: MIT
 *
 * The main function of every C test program: TAP on stdout, `--list` prints the names of the cases, `--only NAME` runs
 * one (a pattern with * and ?).
 */
#ifndef POOLCUDA_TESTING_H
#define POOLCUDA_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TESTING_MAIN(tests)                                                               \
    int main(int argc, char **argv) {                                                     \
        const size_t count = sizeof(tests) / sizeof((tests)[0]);                          \
        if (argc == 2 && strcmp(argv[1], "--list") == 0) {                                \
            for (size_t i = 0; i < count; i++) puts((tests)[i].name);                     \
            return 0;                                                                     \
        }                                                                                 \
        if (argc == 3 && strcmp(argv[1], "--only") == 0) cmocka_set_test_filter(argv[2]); \
        cmocka_set_message_output(CM_OUTPUT_TAP);                                         \
        return cmocka_run_group_tests(tests, NULL, NULL);                                 \
    }

#endif
