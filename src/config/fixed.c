/* SPDX-License-Identifier: MIT
 *
 * The value of POOL_FIXED, from text and to text. Works on the stack only.
 */
#include "config/fixed.h"

#include <stdio.h>
#include <string.h>

static const struct unit {
    const char *name;
    unsigned shift;
} units[] = {{"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"B", 0}};
enum { UNITS = sizeof(units) / sizeof(units[0]) };

/* Decimal digits at *text, which moves behind them; 0 where there are none, or too many. */
static uint64_t take_number(const char **text) {
    uint64_t value = 0;
    bool fits = true;
    for (; **text >= '0' && **text <= '9'; ++*text)
        fits = fits && !__builtin_mul_overflow(value, 10u, &value) &&
               !__builtin_add_overflow(value, (uint64_t)(**text - '0'), &value);
    return fits ? value : 0;
}

/* A number with its unit; 0 where there is none, or it is too large. */
static uint64_t take_size(const char **text) {
    const uint64_t number = take_number(text);
    for (const struct unit *unit = units; unit < units + UNITS; unit++) {
        const size_t length = strlen(unit->name);
        if (strncmp(*text, unit->name, length) != 0) continue;
        *text += length;
        return number <= FIXED_BYTES_MOST >> unit->shift ? number << unit->shift : 0;
    }
    return 0;
}

static uint64_t rounded(uint64_t bytes) {
    return (bytes + 511) / 512 * 512;
}

static bool stands_already(const struct config_fixed *fixed, uint64_t bytes) {
    for (unsigned i = 0; i < fixed->count; i++)
        if (rounded(fixed->sizes[i].bytes) == rounded(bytes)) return true;
    return false;
}

bool config_fixed_parse(const char *text, struct config_fixed *out) {
    struct config_fixed fixed = {0};
    uint64_t total = 0;
    const bool none = strcmp(text, "none") == 0;
    while (!none) {
        const uint64_t bytes = take_size(&text);
        if (*text++ != '*' || fixed.count == CONFIG_FIXED_MOST) return false;
        const uint64_t blocks = take_number(&text);
        if (bytes == 0 || blocks == 0 || blocks > FIXED_BLOCKS_MOST || stands_already(&fixed, bytes)) return false;
        if (rounded(bytes) > (FIXED_BYTES_MOST - total) / blocks) return false;
        total += rounded(bytes) * blocks;
        fixed.sizes[fixed.count].bytes = bytes;
        fixed.sizes[fixed.count++].blocks = blocks;
        if (*text == '\0') break;
        if (*text++ != ',') return false;
    }
    *out = fixed;
    return true;
}

void config_fixed_text(const struct config_fixed *fixed, char *text, size_t size) {
    static const char more[] = "...";
    size_t length = (size_t)snprintf(text, size, "%s", fixed->count == 0 ? "none" : "");
    for (unsigned i = 0; i < fixed->count; i++) {
        const uint64_t bytes = fixed->sizes[i].bytes;
        const struct unit *unit = units;
        while (bytes & ((UINT64_C(1) << unit->shift) - 1)) unit++;
        char piece[64];
        const size_t added = (size_t)snprintf(piece, sizeof piece, "%s%llu%s*%llu", i == 0 ? "" : ",",
                                              (unsigned long long)(bytes >> unit->shift), unit->name,
                                              (unsigned long long)fixed->sizes[i].blocks);
        const bool last = i + 1 == fixed->count;
        if (length + added + (last ? 1 : sizeof more) > size) {
            snprintf(text + length, size - length, "%s", more);
            return;
        }
        memcpy(text + length, piece, added + 1);
        length += added;
    }
}
