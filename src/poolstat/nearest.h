/* SPDX-License-Identifier: MIT
 *
 * What somebody may have meant by a name that there is not.
 */
#ifndef POOLSTAT_NEAREST_H
#define POOLSTAT_NEAREST_H

#include <stddef.h>

/* The one of `names` that takes the fewest changes of a letter, or NULL when all take many. */
const char *nearest(const char *name, const char *const names[], size_t count);

#endif
