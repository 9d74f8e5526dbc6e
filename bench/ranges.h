/* SPDX-License-Identifier: MIT
 *
 * The address ranges of the live blocks of a process, so that two live blocks that share addresses are found out, at
 * whatever place. Any thread may call.
 */
#ifndef BENCH_RANGES_H
#define BENCH_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Owned by the caller, who keeps it unchanged while it is in the set. */
struct range {
    uintptr_t start;
    size_t size;
};

struct ranges;

struct ranges *ranges_create(void); /* NULL: out of memory */
void ranges_destroy(struct ranges *ranges);

enum ranges_answer { RANGES_ADDED, RANGES_OVERLAP, RANGES_NO_MEMORY };

/* Not added on RANGES_OVERLAP: *other is then one that it overlaps. */
enum ranges_answer ranges_add(struct ranges *ranges, const struct range *range, struct range *other);
void ranges_remove(struct ranges *ranges, const struct range *range); /* before its memory is freed */

#endif
