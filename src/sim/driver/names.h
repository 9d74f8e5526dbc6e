/* SPDX-License-Identifier: MIT
 *
 * The names that the driver exports, as numbers and as a table.
 */
#ifndef SIM_NAMES_H
#define SIM_NAMES_H

#include <stdbool.h>

enum driver_name {
#define DRIVER_NAME(symbol, base, version, per_thread) NAME_##symbol,
#include "names.def"
#undef DRIVER_NAME
    NAME_COUNT
};

typedef int names_function(void);

struct name_entry {
    const char *symbol; /* as exported */
    const char *base;   /* as looked up through cuGetProcAddress */
    int version;        /* least version that finds it */
    bool per_thread;
    names_function *function, *fallback; /* equal when the name is not simulated */
};

#pragma GCC visibility push(hidden)
extern const struct name_entry name_table[NAME_COUNT];

/* Counts the call and gives the answer of a name that is not simulated. */
int names_unsimulated(enum driver_name name);
#pragma GCC visibility pop

static inline bool names_is_simulated(enum driver_name name) {
    return name_table[name].function != name_table[name].fallback;
}

#endif
