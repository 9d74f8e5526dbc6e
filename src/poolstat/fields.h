/* SPDX-License-Identifier: MIT
 *
 * The glossary: every field that poolstat shows, with its unit and help. The figures come from the public header, the
 * rest is declared here; `show` takes its help from it, and `help fields` prints all of it.
 */
#ifndef POOLSTAT_FIELDS_H
#define POOLSTAT_FIELDS_H

#include <stddef.h>

struct field {
    const char *name, *unit, *help;
};

enum field_group {
    FIELDS_PROCESS,
    FIELDS_CONFIGURATION,
    FIELDS_POOL,
    FIELDS_FIGURE,
    FIELDS_COUNTER,
    FIELDS_MEASURE,
    FIELDS_SIZE_CLASS,
    FIELDS_LATENCY,
    FIELDS_STREAM,
    FIELDS_FIXED,
    FIELDS_MAP,
    FIELDS_PASS_THROUGH,
    FIELDS_EVENT,
    FIELDS_EVENT_TYPE,
    FIELDS_DOCTOR,
    FIELDS_DOCUMENT,
    FIELDS_GROUPS
};

const char *fields_title(enum field_group group);
const struct field *fields_of(enum field_group group, size_t *count);

/* Help of one field; "" when the group has none of this name. */
const char *fields_help(enum field_group group, const char *name);

#endif
