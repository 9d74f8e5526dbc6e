/* SPDX-License-Identifier: MIT
 *
 * POOL_FILL: a block is filled, to its end, after it was taken for the program and before the program has it. What is
 * served on a stream is filled there and waited for; so such an allocation waits for the stream's earlier work too.
 */
#include "pool/internal.h"

#include "config/log.h"

#define POISON 0xFF /* as floating point of any width a NaN, as an integer -1, and nobody's address */

/* The block is free again. Whether something was submitted that may still write to it is not known. Under pool->lock,
 * from inside the pool: no reset has forgotten the block, but a wrong free may have been quicker. */
static void take_back(struct pool *pool, uint64_t address, enum pool_door door) {
    figures_begin(pool);
    struct block *block = front_end_life(pool, address, door, NULL);
    if (block) {
        live_table_remove(&pool->table, address);
        heap_make_waiting(pool, block, fences_open_batch(&pool->system->fences));
    }
    figures_end(pool);
}

/* Does a capture forbid the fill, that has begun since the request came? The driver is to serve it then. */
static bool is_forbidden(const struct request *request) {
    const struct device_ops *ops = request->pool->system->ops;
    return !request->on || !ops->releases_in_captures(ops->self) ||
           ops->stream_capturing(ops->self, request->on->called) != DEVICE_OK;
}

static int fill(const struct request *request, uint64_t address, size_t bytes) {
    struct pool_system *system = request->pool->system;
    const struct device_ops *ops = system->ops;
    const uint8_t value = system->options.fill == CONFIG_FILL_ZERO ? 0 : POISON;
    const struct stream_ref *on = request->on;
    const struct device_context context = on ? on->identity.context : request->pool->source.context;
    int code = ops->fill(ops->self, context, on ? &on->called : NULL, address, bytes, value);
    /* The stream for it is memory too. */
    if (code == DEVICE_OUT_OF_MEMORY && pool_relieve(system, context.ordinal))
        code = ops->fill(ops->self, context, on ? &on->called : NULL, address, bytes, value);
    return code;
}

int fill_block(const struct request *request, const struct block *block) {
    struct pool *pool = request->pool;
    const uint64_t address = block->address;
    const size_t bytes = block->size;
    pool_enter(pool);
    lock_give(&pool->lock);

    const bool guarded = capture_wait_begin(pool);
    int code = guarded || !is_forbidden(request) ? fill(request, address, bytes) : DEVICE_NOT_READY;

    lock_take(&pool->lock);
    if (guarded) capture_wait_end(pool);
    if (code != DEVICE_OK) take_back(pool, address, request->door);
    pool_leave(pool);
    lock_give(&pool->lock);
    if (code != DEVICE_OK && code != DEVICE_NOT_READY)
        log_line(LOG_WARNING, "device %d: %zu bytes could not be filled: the driver answered %d", pool->device->ordinal,
                 bytes, code);
    return code;
}
