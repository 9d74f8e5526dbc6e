/* SPDX-License-Identifier: MIT
 *
 * Reads sizes, digit by digit: no locale decides what a point is.
 */
#include "size.h"

#include <string.h>
#include <strings.h>

enum { FRACTION_DIGITS = 9 };

__extension__ typedef unsigned __int128 wide;

/* Bits by which the unit shifts; negative when it is none. */
static int unit_shift(const char *unit) {
    static const char letters[] = "KMGT";
    if (unit[0] == '\0' || strcasecmp(unit, "B") == 0) return 0;
    for (int i = 0; letters[i] != '\0'; i++) {
        const char whole[] = {letters[i], 'i', 'B', '\0'}, letter[] = {letters[i], '\0'};
        if (strcasecmp(unit, whole) == 0 || strcasecmp(unit, letter) == 0) return 10 * (i + 1);
    }
    return -1;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

bool size_parse(const char *text, uint64_t *bytes) {
    uint64_t number = 0, fraction = 0, scale = 1;
    if (!is_digit(*text)) return false;
    for (; is_digit(*text); text++)
        if (__builtin_mul_overflow(number, 10u, &number) ||
            __builtin_add_overflow(number, (uint64_t)(*text - '0'), &number))
            return false;
    const bool has_point = *text == '.';
    if (has_point) {
        int digits = 0;
        for (text++; is_digit(*text); text++, digits++) {
            if (digits == FRACTION_DIGITS) return false;
            fraction = fraction * 10 + (uint64_t)(*text - '0');
            scale *= 10;
        }
        if (digits == 0) return false;
    }
    const int shift = unit_shift(text);
    if (shift < 0 || (has_point && shift == 0) || number > (uint64_t)INT64_MAX >> shift) return false;
    const uint64_t part = (uint64_t)((wide)fraction * ((uint64_t)1 << shift) / scale);
    const uint64_t whole = number << shift;
    if (part > (uint64_t)INT64_MAX - whole) return false;
    *bytes = whole + part;
    return true;
}
