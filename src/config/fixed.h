/* SPDX-License-Identifier: MIT
 *
 * The value of POOL_FIXED: SIZE*COUNT,… with a unit after each size. Internal to src/config.
 */
#ifndef POOLCUDA_CONFIG_FIXED_H
#define POOLCUDA_CONFIG_FIXED_H

#include <stdbool.h>
#include <stddef.h>

#include "config/config.h"

/* False, *fault told, and *out as it was, where the text is none: a size or count of 0, a size that stands twice when
 * rounded up to 512 bytes, more than FIXED_BLOCKS_MOST of a size or FIXED_BYTES_MOST in all. */
#define FIXED_BLOCKS_MOST (UINT64_C(1) << 20)
#define FIXED_BYTES_MOST (UINT64_C(1) << 44)

/* The item that is wrong, and how: "is no SIZE*COUNT". */
struct fixed_fault {
    const char *item;
    size_t length;
    const char *what;
};
bool config_fixed_parse(const char *text, struct config_fixed *out, struct fixed_fault *fault);

/* The same as text, each size in its largest whole unit; "..." ends what found no room. */
void config_fixed_text(const struct config_fixed *fixed, char *text, size_t size);

#endif
