/* SPDX-License-Identifier: MIT
 *
 * A door of the test library only: the library itself hides its symbols. libpoolcuda_checked.so is made of the very
 * objects of libpoolcuda.so and this one.
 */
#include <stdatomic.h>

#include "entry/process.h"
#include "pool/pool.h"

/* A sentence about an invariant of the pool that does not hold; NULL when all do, or nothing is pooled. */
__attribute__((visibility("default"))) const char *poolcuda_check(void);

const char *poolcuda_check(void) {
    struct pool_system *pool = atomic_load(&process_own.driver_pool);
    return pool != NULL ? pool_check(pool) : NULL;
}

/* Whether the live block that holds the address starts its segment; true of all other memory. */
__attribute__((visibility("default"))) bool poolcuda_starts_segment(uint64_t address);

bool poolcuda_starts_segment(uint64_t address) {
    struct pool_block_info info;
    struct pool_system *pool = atomic_load(&process_own.driver_pool);
    return pool == NULL || pool_find(pool, address, &info) != DEVICE_OK || info.offset_in_segment == 0;
}

/* Bytes that are neither live nor cached: freed, but perhaps open in another process. */
__attribute__((visibility("default"))) uint64_t poolcuda_exported_bytes(void);

uint64_t poolcuda_exported_bytes(void) {
    struct pool_totals totals;
    struct pool_system *pool = atomic_load(&process_own.driver_pool);
    if (pool == NULL) return 0;
    pool_totals(pool, -1, &totals);
    return totals.exported;
}
