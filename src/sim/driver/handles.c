/* SPDX-License-Identifier: MIT
 *
 * Objects behind handles. A table's objects lie in one array that is never given back, so that any value that a program
 * passes can be told apart: live, destroyed, or never a handle. As with the real driver, a destroyed object's handle
 * comes back soon.
 */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

/* A power of two, so that checking a handle needs no division. */
static size_t stride_of(const struct handle_table *table) {
    return (size_t)1 << (64 - __builtin_clzll((unsigned long long)table->size - 1));
}

static struct handle *fresh_object(struct handle_table *table) {
    char *objects = atomic_load_explicit(&table->objects, memory_order_relaxed);
    if (objects == NULL) {
        objects = calloc(table->limit, stride_of(table));
        if (objects == NULL) return NULL;
        atomic_store_explicit(&table->objects, objects, memory_order_release);
    }
    const size_t used = atomic_load_explicit(&table->used, memory_order_relaxed);
    if (used == table->limit) return NULL;
    atomic_store_explicit(&table->used, used + 1, memory_order_release);
    return (struct handle *)(objects + used * stride_of(table));
}

void *handle_new(struct handle_table *table) {
    pthread_mutex_lock(&table->lock);
    struct handle *object = table->prefer_fresh ? fresh_object(table) : NULL;
    if (object == NULL && table->free != NULL) {
        object = table->free;
        table->free = object->next_free;
        memset((char *)object + sizeof(struct handle), 0, table->size - sizeof(struct handle));
    }
    if (object == NULL) object = fresh_object(table);
    pthread_mutex_unlock(&table->lock);
    return object;
}

void handle_publish(void *object) {
    atomic_store_explicit(&((struct handle *)object)->state, HANDLE_LIVE, memory_order_release);
}

bool handle_kill(void *object) {
    int live = HANDLE_LIVE;
    return atomic_compare_exchange_strong(&((struct handle *)object)->state, &live, HANDLE_DEAD);
}

void handle_release(struct handle_table *table, void *object) {
    struct handle *const handle = object;
    pthread_mutex_lock(&table->lock);
    handle->next_free = table->free;
    table->free = handle;
    pthread_mutex_unlock(&table->lock);
}

enum handle_state handle_state_of(struct handle_table *table, const void *object) {
    const char *const objects = atomic_load_explicit(&table->objects, memory_order_acquire);
    if (objects == NULL) return HANDLE_UNUSED;
    const size_t offset = (uintptr_t)object - (uintptr_t)objects;
    const size_t used = atomic_load_explicit(&table->used, memory_order_acquire);
    const size_t stride = stride_of(table);
    if (offset >= used * stride || (offset & (stride - 1)) != 0) return HANDLE_UNUSED;
    return (enum handle_state)atomic_load_explicit(&((const struct handle *)object)->state, memory_order_acquire);
}

CUresult handle_check(struct handle_table *table, const void *object) {
    switch (handle_state_of(table, object)) {
    case HANDLE_LIVE:
        return CUDA_SUCCESS;
    case HANDLE_DEAD:
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    default:
        return CUDA_ERROR_INVALID_HANDLE;
    }
}
