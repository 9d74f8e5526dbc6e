/* SPDX-License-Identifier: MIT
 *
 * Writing the exposition. A scrape of many processes has ten thousands of samples, so numbers and copies are made
 * without printf.
 */
#include "exposition.h"

#include <stdlib.h>
#include <string.h>

#include "memory.h"

#define DIGITS 20 /* of the largest 64-bit number */
#define NS_DIGITS 9
#define NS_PER_S UINT64_C(1000000000)

void exposition_reserve(struct exposition *out, size_t bytes) {
    if (bytes <= out->room) return;
    out->text = memory_grow(out->text, bytes, 1);
    out->room = bytes;
}

static char *room_for(struct exposition *out, size_t bytes) {
    if (out->room - out->length <= bytes) { /* one stays for the terminator */
        while (out->room - out->length <= bytes) out->room = out->room == 0 ? 4096 : 2 * out->room;
        out->text = memory_grow(out->text, out->room, 1);
    }
    return out->text + out->length;
}

static void put(struct exposition *out, const char *bytes, size_t length) {
    memcpy(room_for(out, length), bytes, length);
    out->length += length;
    out->text[out->length] = '\0';
}

static void put_text(struct exposition *out, const char *text) {
    put(out, text, strlen(text));
}

/* Returns where the digits begin in the `DIGITS` bytes. */
static const char *digits_of(uint64_t value, char digits[DIGITS]) {
    char *at = digits + DIGITS;
    do {
        *--at = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    return at;
}

struct seconds exposition_ns(uint64_t ns) {
    struct seconds text;
    char digits[DIGITS], *to = text.s;
    const char *at = digits_of(ns / NS_PER_S, digits);
    to = mempcpy(to, at, (size_t)(digits + DIGITS - at));
    if (ns % NS_PER_S != 0) {
        *to++ = '.';
        /* A one in front keeps the zeros. */
        at = digits_of(NS_PER_S + ns % NS_PER_S, digits);
        to = mempcpy(to, at + 1, NS_DIGITS);
        while (to[-1] == '0') to--;
    }
    *to = '\0';
    return text;
}

static void put_escaped(struct exposition *out, const char *text, const char *special) {
    while (*text != '\0') {
        const size_t plain = strcspn(text, special);
        put(out, text, plain);
        text += plain;
        if (*text == '\0') break;
        const char escaped[] = {'\\', *text == '\n' ? 'n' : *text};
        put(out, escaped, sizeof(escaped));
        text++;
    }
}

void labels_add(struct labels *labels, const char *name, const char *value) {
    struct exposition out = {.text = labels->text, .length = labels->length, .room = 0};
    out.room = labels->text == NULL ? 0 : labels->length + 1;
    if (labels->length != 0) put_text(&out, ",");
    put_text(&out, name);
    put_text(&out, "=\"");
    put_escaped(&out, value, "\\\"\n");
    put_text(&out, "\"");
    *labels = (struct labels){out.text, out.length};
}

void labels_add_number(struct labels *labels, const char *name, uint64_t value) {
    char digits[DIGITS], text[DIGITS + 1];
    const char *at = digits_of(value, digits);
    *(char *)mempcpy(text, at, (size_t)(digits + DIGITS - at)) = '\0';
    labels_add(labels, name, text);
}

struct labels labels_copy(const struct labels *labels) {
    return labels->text == NULL ? (struct labels){0} : (struct labels){memory_copy(labels->text), labels->length};
}

void labels_free(struct labels *labels) {
    free(labels->text);
    *labels = (struct labels){0};
}

void exposition_family(struct exposition *out, const char *name, enum family_type type, const char *help) {
    static const char *const types[] = {
        [FAMILY_COUNTER] = "counter", [FAMILY_GAUGE] = "gauge", [FAMILY_HISTOGRAM] = "histogram"};
    put_text(out, "# HELP ");
    put_text(out, name);
    put_text(out, " ");
    put_escaped(out, help, "\\\n");
    put_text(out, "\n# TYPE ");
    put_text(out, name);
    put_text(out, " ");
    put_text(out, types[type]);
    put_text(out, "\n");
}

/* A whole line; room for it is made once. `bound`: of a bucket, else NULL. */
static void put_sample(struct exposition *out, const char *name, const char *suffix, const struct labels *labels,
                       const char *bound, const char *value, size_t value_length) {
    static const char le[] = "le=\"";
    const size_t name_length = strlen(name), suffix_length = strlen(suffix);
    const size_t bound_length = bound == NULL ? 0 : strlen(bound);
    const size_t label_length = labels == NULL ? 0 : labels->length;
    const size_t marks = sizeof("{,} \n") + sizeof(le);
    char *const begin = room_for(out, name_length + suffix_length + label_length + bound_length + value_length + marks);
    char *to = mempcpy(begin, name, name_length);
    to = mempcpy(to, suffix, suffix_length);
    if (label_length != 0 || bound != NULL) *to++ = '{';
    if (label_length != 0) to = mempcpy(to, labels->text, label_length);
    if (bound != NULL) {
        if (label_length != 0) *to++ = ',';
        to = mempcpy(to, le, sizeof(le) - 1);
        to = mempcpy(to, bound, bound_length);
        *to++ = '"';
    }
    if (label_length != 0 || bound != NULL) *to++ = '}';
    *to++ = ' ';
    to = mempcpy(to, value, value_length);
    *to++ = '\n';
    *to = '\0';
    out->length += (size_t)(to - begin);
}

static void put_number_of(struct exposition *out, const char *name, const char *suffix, const struct labels *labels,
                          const char *bound, uint64_t value) {
    char digits[DIGITS];
    const char *at = digits_of(value, digits);
    put_sample(out, name, suffix, labels, bound, at, (size_t)(digits + DIGITS - at));
}

void exposition_number(struct exposition *out, const char *name, const char *suffix, const struct labels *labels,
                       uint64_t value) {
    put_number_of(out, name, suffix, labels, NULL, value);
}

void exposition_seconds(struct exposition *out, const char *name, const char *suffix, const struct labels *labels,
                        uint64_t ns) {
    const struct seconds seconds = exposition_ns(ns);
    put_sample(out, name, suffix, labels, NULL, seconds.s, strlen(seconds.s));
}

void exposition_bucket(struct exposition *out, const char *name, const struct labels *labels, const char *bound,
                       uint64_t count) {
    put_number_of(out, name, "_bucket", labels, bound, count);
}
