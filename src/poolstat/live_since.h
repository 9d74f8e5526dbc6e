/* SPDX-License-Identifier: MIT
 *
 * "Count from here": the figures of a segment with its counters as they have grown since an earlier copy.
 */
#ifndef POOLSTAT_LIVE_SINCE_H
#define POOLSTAT_LIVE_SINCE_H

#include "segment.h"

/* What is needed of a copy to count from it: pools and cells alone, its own. */
struct segment *since_note(const struct segment *segment);

/* What is no counter is as in `now`. Everything but pools and cells is shared with `now`, which outlives it. A pool
 * that `then` does not have, or not in this life, counts from its start. */
struct segment *since_make(const struct segment *now, const struct segment *then);
void since_free(struct segment *since); /* of either */

#endif
