/* SPDX-License-Identifier: MIT
 *
 * Formatting of numbers with units, and the escaping of untrusted strings.
 */
#include "text.h"

#include <locale.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "memory.h"

static const struct text unknown = {"-"};
static bool plain_bytes;

void text_start(void) {
    /* One known character set, whatever the user's locale, and decimal points stay points. Without it what is not ASCII
     * is escaped. */
    if (setlocale(LC_CTYPE, "C.UTF-8") == NULL) setlocale(LC_CTYPE, "C");
}

static struct text scaled(double value, const char *unit) {
    struct text text;
    const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    snprintf(text.s, sizeof(text.s), "%.*f %s", decimals, value, unit);
    return text;
}

void text_plain_bytes(void) {
    plain_bytes = true;
}

struct text text_bytes(uint64_t bytes) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes == TEXT_UNKNOWN) return unknown;
    if (plain_bytes) return text_count(bytes);
    struct text text;
    if (bytes < 1024) {
        snprintf(text.s, sizeof(text.s), "%u B", (unsigned)bytes);
        return text;
    }
    double value = (double)bytes / 1024;
    size_t unit = 0;
    while (value >= 1023.5 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1024;
        unit++;
    }
    return scaled(value, units[unit]);
}

struct text text_duration(uint64_t ns) {
    if (ns == TEXT_UNKNOWN) return unknown;
    struct text text;
    const uint64_t seconds = ns / 1000000000u;
    if (ns < 1000)
        snprintf(text.s, sizeof(text.s), "%u ns", (unsigned)ns);
    else if (ns < 999500)
        return scaled((double)ns / 1e3, "us");
    else if (ns < 999500000)
        return scaled((double)ns / 1e6, "ms");
    else if (seconds < 60)
        return scaled((double)ns / 1e9, "s");
    else if (seconds < 3600)
        snprintf(text.s, sizeof(text.s), "%um%02us", (unsigned)(seconds / 60), (unsigned)(seconds % 60));
    else if (seconds < 86400)
        snprintf(text.s, sizeof(text.s), "%uh%02um", (unsigned)(seconds / 3600), (unsigned)(seconds / 60 % 60));
    else
        snprintf(text.s, sizeof(text.s), "%llud%02uh", (unsigned long long)(seconds / 86400),
                 (unsigned)(seconds / 3600 % 24));
    return text;
}

struct text text_count(uint64_t count) {
    if (count == TEXT_UNKNOWN) return unknown;
    struct text text;
    snprintf(text.s, sizeof(text.s), "%llu", (unsigned long long)count);
    return text;
}

struct text text_ratio(double ratio) {
    if (isnan(ratio)) return unknown;
    /* All and nothing are said only of what is exactly that. */
    if (ratio > 0.9995 && ratio < 1) return (struct text){">99.9%"};
    if (ratio > 0 && ratio < 0.0005) return (struct text){"<0.1%"};
    struct text text;
    snprintf(text.s, sizeof(text.s), "%.1f%%", ratio * 100);
    return text;
}

struct text text_cuda(uint32_t version) {
    if (version == 0) return unknown;
    struct text text;
    snprintf(text.s, sizeof(text.s), "%u.%u", version / 1000, version % 1000 / 10);
    return text;
}

struct text text_handle(uint64_t handle) {
    struct text text;
    snprintf(text.s, sizeof(text.s), "0x%llx", (unsigned long long)handle);
    return text;
}

char *text_safe(const char *bytes, size_t size) {
    const size_t length = strnlen(bytes, size);
    char *safe = memory_new(length * 4 + 1, 1); /* no escape is longer than four times what it stands for */
    char *to = safe;
    mbstate_t state = {0};
    for (size_t i = 0; i < length;) {
        wchar_t character = 0;
        const size_t used = mbrtowc(&character, bytes + i, length - i, &state);
        if (used == 0 || used > length - i) {
            to += sprintf(to, "\\x%02x", (unsigned char)bytes[i++]);
            memset(&state, 0, sizeof(state));
            continue;
        }
        if (character == L'\\')
            to += sprintf(to, "\\\\");
        else if (wcwidth(character) > 0)
            to = mempcpy(to, bytes + i, used);
        else if (character < 0x80)
            to += sprintf(to, "\\x%02x", (unsigned)character);
        else
            to += sprintf(to, "\\u{%x}", (unsigned)character);
        i += used;
    }
    *to = '\0';
    return safe;
}

size_t text_character(const char *text, size_t *columns) {
    mbstate_t state = {0};
    wchar_t character = 0;
    if (*text >= 0x20 && *text < 0x7f) { /* nearly all of them */
        *columns = 1;
        return 1;
    }
    const size_t left = strlen(text);
    const size_t used = mbrtowc(&character, text, left, &state);
    if (used == 0 || used > left) {
        *columns = 1;
        return 1;
    }
    const int width = wcwidth(character);
    *columns = width > 0 ? (size_t)width : 0;
    return used;
}

size_t text_width(const char *text) {
    size_t width = 0, columns;
    while (*text != '\0') {
        text += text_character(text, &columns);
        width += columns;
    }
    return width;
}

void text_cut(char *text, size_t width) {
    if (text_width(text) <= width || width == 0) return;
    char *at = text;
    for (size_t used = 0, columns; *at != '\0'; used += columns) {
        const size_t bytes = text_character(at, &columns);
        if (used + columns + 1 > width) break;
        at += bytes;
    }
    /* One byte, so that it fits in place of the character that it stands for. */
    *at++ = '+';
    *at = '\0';
}

char *text_label(const char *name) {
    char *label = memory_copy(name);
    char *suffix = strrchr(label, '_');
    if (suffix != NULL && suffix != label && (strcmp(suffix, "_bytes") == 0 || strcmp(suffix, "_ns") == 0))
        *suffix = '\0';
    for (char *at = label; *at != '\0'; at++)
        if (*at == '_') *at = ' ';
    return label;
}
