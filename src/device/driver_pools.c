/* SPDX-License-Identifier: MIT
 *
 * Memory pools that the program may export. No segment is taken from one: the driver exports whole allocations, and
 * tells nobody which of them others have imported. They belong to the process, whose first calls may come before there
 * is a struct device_driver.
 */
#include "device/driver.h"

#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const void **exportable;
static size_t capacity;
static _Atomic size_t count;

/* With the lock; `count` where there is none. */
static size_t place_of(const void *memory_pool) {
    size_t place = 0;
    while (place < count && exportable[place] != memory_pool) place++;
    return place;
}

static bool grow(void) {
    if (count < capacity) return true;
    const void **grown = realloc(exportable, (capacity + 64) * sizeof *exportable);
    if (!grown) return false;
    exportable = grown;
    capacity += 64;
    return true;
}

bool device_driver_pool_set_exportable(const void *memory_pool, bool can_be) {
    pthread_mutex_lock(&lock);
    const size_t place = place_of(memory_pool);
    const bool was = place < count;
    if (was && !can_be) exportable[place] = exportable[--count];
    if (!was && can_be && grow()) exportable[count++] = memory_pool;
    pthread_mutex_unlock(&lock);
    return was;
}

bool device_driver_pool_exportable(const void *memory_pool) {
    if (count == 0) return false;
    pthread_mutex_lock(&lock);
    const bool can_be = place_of(memory_pool) < count;
    pthread_mutex_unlock(&lock);
    return can_be;
}

void device_driver_pools_after_fork(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    /* The array may be half written, and the parent's memory pools are none of this process's. */
    exportable = NULL;
    capacity = 0;
    count = 0;
}
