/* SPDX-License-Identifier: MIT
 *
 * Segments from and to the driver, and what happens when there are no more.
 * Included by internal.h alone.
 */
#ifndef POOLCUDA_POOL_GROW_H
#define POOLCUDA_POOL_GROW_H

struct request {
    struct pool *pool;
    size_t size, requested; /* rounded, and as asked */
    struct stream_ref *on;  /* the stream of a stream-ordered one, else NULL */
    struct front *front;    /* that counts it, where pool->lock is held since it was found; else NULL */
    enum pool_door door;
};

/* Serve a request that found no fitting block. Called with pool->lock held and pool->inside counted; returns with the
 * lock held. 0 and *block handed out; where the answer is DEVICE_OUT_OF_MEMORY, *reason says whose it is. */
int grow_and_hand_out(const struct request *request, struct block **block, bool *took_segment,
                      enum poolcuda_oom_reason *reason);
/* `change` (modulo 2^64) bytes of the device were reserved or given back. Under device->lock. */
void device_count(struct device_state *device, uint64_t change);
/* What is reserved on it, promises included. No lock held. */
uint64_t device_reserved(struct device_state *device);
/* Give back wholly free segments of all pools of a device: largest first, until `enough` bytes are back or at most
 * `keep` bytes stay cached. Without `waits` those of the async kind alone: the driver's release of a plain one waits
 * for the device. No lock held. */
uint64_t grow_release(struct pool_system *system, struct device_state *device, uint64_t enough, uint64_t keep,
                      bool waits);
/* The same of one pool, after what can be proved idle without waiting has become so. */
uint64_t grow_release_pool(struct pool *pool, uint64_t keep);
/* The same of all that belongs to memory pools that were destroyed: it serves nobody any more. */
void grow_release_ended(struct pool_system *system);
/* What can be proved idle on a device becomes so: without waiting, or else by waiting for everything. No lock held. */
void grow_prove(struct pool_system *system, const struct device_state *device);
bool grow_settle(struct pool_system *system, const struct device_state *device);
/* What the bins of a device's pools hold is merged, so that it is known which segments are wholly free. No lock held.
 */
void grow_merge(struct pool_system *system, const struct device_state *device);

/* Give back what is wholly free until at most `keep_bytes` stay cached, and count it as a trim. No lock held. */
uint64_t grow_trim(struct pool_system *system, struct device_state *device, uint64_t keep_bytes, bool waits);

/* Give `bytes` back where that is known to be possible, and count it as a trim. No lock held. */
uint64_t grow_give_up(struct pool_system *system, struct device_state *device, uint64_t bytes);

/* The device's headroom was touched: give back what is wholly free until it is whole. No lock held; the
 * caller is counted in pool->inside. */
void grow_keep_headroom(struct pool *pool, bool waits);

/* What may be reserved ahead of requests: within the limit, and with the headroom left free. No lock held. */
uint64_t grow_room(struct pool *pool);
/* Ask the driver for so much: 0 and *address, or a driver's code. No lock held; the caller is counted in pool->inside.
 */
int grow_reserve(struct pool *pool, size_t bytes, uint64_t *address);
/* There is no host memory to keep a record of what the driver gave. No lock held. */
void grow_refuse(struct pool *pool, uint64_t address, size_t bytes);
/* A segment that pool->lock holders cannot find any more goes to the driver: a wait of the pool's, which is announced
 * (capture_release_begin). No lock held; ends the wait and leaves the pool once. */
void grow_give_back(struct pool *pool, struct segment *segment);
/* May the pool give a segment back? One that is to be closed stays as it is as long as nobody is inside. Under
 * pool->lock. */
bool grow_may_release(const struct pool *pool);

/* A segment that is free but for blocks which were exported without a trace goes back to the driver, as it would have
 * gone at the last of its frees: a release that waits. Returns its size, 0 when there is none. No lock held. */
uint64_t grow_release_untraceable(struct pool *pool);

#endif
