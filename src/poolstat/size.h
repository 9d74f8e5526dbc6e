/* SPDX-License-Identifier: MIT
 *
 * Sizes as people write them.
 */
#ifndef POOLSTAT_SIZE_H
#define POOLSTAT_SIZE_H

#include <stdbool.h>
#include <stdint.h>

#define SIZE_WANTED "a size is wanted, as in 512MiB, 1.5GiB or 0"

/* A number, of which a fraction is allowed before a unit: B, KiB, MiB, GiB or TiB, or their first letters, in either
 * case; without one, bytes. Parts of a byte are left out. False for anything else, and for 2^63 bytes and more. */
bool size_parse(const char *text, uint64_t *bytes);

#endif
