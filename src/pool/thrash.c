/* SPDX-License-Identifier: MIT
 *
 * A guard against thrashing. Near the end of the device's memory a pool fits more into it by giving segments back in
 * order to take others; a program that does so at every step is no faster than without the pool. So the driver's calls
 * for segments are owed, and the pool's allocations pay them off. A pool that owes too much saves calls until it finds
 * at a call that half of that is paid: it leaves wholly free segments as they are where it can, and gives large
 * requests larger blocks, which are not split. Neither outlasts the blocks, so the memory that it costs comes back.
 * Calls without which a request would fail are made all the same.
 */
#include "pool/internal.h"

#define OWED_MOST 2048   /* calls: some tenths of a second, once */
#define PAYING_A_CALL 16 /* allocations, of which each would be a call without the pool */

bool thrash_saves(struct pool *pool) {
    struct thrash *thrash = &pool->thrash;
    struct front_sums fronts;
    fronts_sum(pool, &fronts);
    const uint64_t paid = (fronts.served - thrash->counted) / PAYING_A_CALL;
    thrash->counted += paid * PAYING_A_CALL;
    thrash->owed = thrash->owed > paid ? thrash->owed - paid : 0;
    if (thrash->owed >= OWED_MOST) thrash->saves = true;
    if (thrash->owed < OWED_MOST / 2) thrash->saves = false;
    return thrash->saves;
}
