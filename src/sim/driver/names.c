/* SPDX-License-Identifier: MIT
 *
 * The table of every exported name, and the answer of those that are not simulated: 801, counted. Each name is defined
 * here weakly; a module that simulates it defines it strongly, and the linker takes that one. So the table needs no
 * list of what is simulated: a name whose address is not its own fallback is.
 */
#include "names.h"

/* The fallbacks carry the real names but not the real parameters, which they do not look at; so no CUDA header here. */
#define DRIVER_NAME(symbol, base, version, per_thread) \
    static int unsimulated_##symbol(void) {            \
        return names_unsimulated(NAME_##symbol);       \
    }                                                  \
    int symbol(void) __attribute__((weak, alias("unsimulated_" #symbol)));
#include "names.def"
#undef DRIVER_NAME

const struct name_entry name_table[NAME_COUNT] = {
#define DRIVER_NAME(symbol, base, version, per_thread) \
    {#symbol, #base, version, per_thread, (names_function *)symbol, (names_function *)unsimulated_##symbol},
#include "names.def"
#undef DRIVER_NAME
};
