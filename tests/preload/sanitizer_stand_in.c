/* SPDX-License-Identifier: MIT
 *
 * Stands for the library that compute-sanitizer loads into a program.
 */
int sanitizer_stand_in(void);

int sanitizer_stand_in(void) {
    return 1;
}
