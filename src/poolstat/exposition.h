/* SPDX-License-Identifier: MIT
 *
 * The text form in which Prometheus gathers metrics, version 0.0.4: families with a line of help and a line of type,
 * then their samples. What is told here is written as it is; labels are the only place where foreign text may stand.
 */
#ifndef POOLSTAT_EXPOSITION_H
#define POOLSTAT_EXPOSITION_H

#include <stddef.h>
#include <stdint.h>

#define EXPOSITION_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* A growing text; zero is an empty one. The bytes are its owner's, with a terminator that `length` does not count. */
struct exposition {
    char *text;
    size_t length, room;
};

/* Labels in their final form, `a="1",b="2"`; zero is none. */
struct labels {
    char *text;
    size_t length;
};

/* Adds a label. `value` is escaped as the form asks; it must be UTF-8 without control characters (see text_safe). */
void labels_add(struct labels *labels, const char *name, const char *value);
void labels_add_number(struct labels *labels, const char *name, uint64_t value);
struct labels labels_copy(const struct labels *labels);
void labels_free(struct labels *labels);

enum family_type { FAMILY_COUNTER, FAMILY_GAUGE, FAMILY_HISTOGRAM };

/* Room for so many bytes in all, so that they are not copied as the text grows. */
void exposition_reserve(struct exposition *out, size_t bytes);

/* Begins a family. All of its samples follow, before the next one begins. */
void exposition_family(struct exposition *out, const char *name, enum family_type type, const char *help);

/* One sample; `labels` may be NULL. `suffix`, often "", stands behind the family's name. */
void exposition_number(struct exposition *out, const char *name, const char *suffix, const struct labels *labels,
                       uint64_t value);
void exposition_seconds(struct exposition *out, const char *name, const char *suffix, const struct labels *labels,
                        uint64_t ns);

/* One bucket of a histogram: how many observations were at most `bound`, which is a decimal number or "+Inf". */
void exposition_bucket(struct exposition *out, const char *name, const struct labels *labels, const char *bound,
                       uint64_t count);

/* Nanoseconds as seconds, without loss and without zeros at the end: "0.0000025". */
struct seconds {
    char s[32];
};
struct seconds exposition_ns(uint64_t ns);

#endif
