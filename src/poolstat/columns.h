/* SPDX-License-Identifier: MIT
 *
 * Every field of a process and of its figures on one device by its name in the glossary: what `-o` may name, a row of
 * CSV has, and `check` compares.
 */
#ifndef POOLSTAT_COLUMNS_H
#define POOLSTAT_COLUMNS_H

#include "collect.h"
#include "derive.h"

/* What a row of the list is about. */
struct row {
    const struct process *process;   /* with a copy */
    const struct device_sum *device; /* NULL when it has no pool yet */
};

enum column_unit { COLUMN_BYTES, COLUMN_COUNT, COLUMN_NS, COLUMN_RATIO, COLUMN_FLAG, COLUMN_TEXT };

struct value {
    enum column_unit unit;
    bool known;
    double ratio;    /* of COLUMN_RATIO */
    uint64_t number; /* of the other numbers, and 0 or 1 of a flag */
    char *text;      /* of COLUMN_TEXT; the value owns it */
};

struct column {
    const char *name;
    enum column_unit unit;
    size_t offset;                                           /* of a figure in struct device_sum; of others 0 */
    void (*get)(const struct row *row, struct value *value); /* NULL: a figure */
};

const struct column *columns_all(size_t *count);

/* By name; the end _bytes or _ns may be left out. NULL when there is none. */
const struct column *columns_find(const char *name, size_t length);

const char *columns_nearest(const char *name); /* which may have been meant, or NULL */

/* In tables. The caller frees them. */
char *column_title(const struct column *column);
char *column_text(const struct column *column, const struct row *row);

struct value column_value(const struct column *column, const struct row *row);
void value_free(struct value *value);

/* For people: with a unit, unknown is "-". For machines: bytes, nanoseconds and ratios as numbers, true or false,
 * unknown is empty. The caller frees it. */
char *value_text(const struct value *value);
char *value_plain(const struct value *value);

#endif
