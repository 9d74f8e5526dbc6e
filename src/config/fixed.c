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

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Decimal digits at *text, which moves behind them: false where there are none. 0 stands for too many. */
static bool take_number(const char **text, uint64_t *out) {
    uint64_t value = 0;
    bool fits = true;
    if (!is_digit(**text)) return false;
    for (; is_digit(**text); ++*text)
        fits = fits && !__builtin_mul_overflow(value, 10u, &value) &&
               !__builtin_add_overflow(value, (uint64_t)(**text - '0'), &value);
    *out = fits ? value : 0;
    return true;
}

/* A number with its unit: false where there is none. 0 stands for what is too large. */
static bool take_size(const char **text, uint64_t *out) {
    uint64_t number;
    if (!take_number(text, &number)) return false;
    for (const struct unit *unit = units; unit < units + UNITS; unit++) {
        const size_t length = strlen(unit->name);
        if (strncmp(*text, unit->name, length) != 0) continue;
        *text += length;
        *out = number <= FIXED_BYTES_MOST >> unit->shift ? number << unit->shift : 0;
        return true;
    }
    return false;
}

static uint64_t rounded(uint64_t bytes) {
    return (bytes + 511) / 512 * 512;
}

static bool stands_already(const struct config_fixed *fixed, uint64_t bytes) {
    for (unsigned i = 0; i < fixed->count; i++)
        if (rounded(fixed->sizes[i].bytes) == rounded(bytes)) return true;
    return false;
}

/* Adds one SIZE*COUNT. NULL, or what is wrong with it. */
static const char *add_item(const char *text, struct config_fixed *fixed, uint64_t *total) {
    uint64_t bytes, blocks;
    if (!take_size(&text, &bytes) || *text != '*') return "is no SIZE*COUNT";
    text++;
    if (!take_number(&text, &blocks) || (*text != ',' && *text != '\0')) return "is no SIZE*COUNT";
    if (bytes == 0) return "has a size that is not 1 B to 16 TiB";
    if (blocks == 0 || blocks > FIXED_BLOCKS_MOST) return "has a count that is not 1 to 1048576";
    if (fixed->count == CONFIG_FIXED_MOST) return "is one too many";
    if (stands_already(fixed, bytes)) return "repeats a size (they are rounded up to 512 bytes)";
    if (rounded(bytes) > (FIXED_BYTES_MOST - *total) / blocks) return "makes it more than 16 TiB";
    *total += rounded(bytes) * blocks;
    fixed->sizes[fixed->count].bytes = bytes;
    fixed->sizes[fixed->count++].blocks = blocks;
    return NULL;
}

bool config_fixed_parse(const char *text, struct config_fixed *out, struct fixed_fault *fault) {
    struct config_fixed fixed = {0};
    uint64_t total = 0;
    const bool none = strcmp(text, "none") == 0;
    while (!none) {
        const size_t length = strcspn(text, ",");
        *fault = (struct fixed_fault){.item = text, .length = length, .what = add_item(text, &fixed, &total)};
        if (fault->what != NULL) return false;
        if (text[length] == '\0') break;
        text += length + 1;
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
