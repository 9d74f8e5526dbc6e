/* SPDX-License-Identifier: MIT
 *
 * Batches of frees, and the proofs that their work has ended.
 * Included by internal.h alone.
 */
#ifndef POOLCUDA_POOL_FENCES_H
#define POOLCUDA_POOL_FENCES_H

/* Every free joins the batch that is open. A batch is proved by a mark that was recorded after it was sealed: a fence,
 * behind all work of the process, or for ordered blocks a mark on their stream. */
#define FENCES_MOST 16          /* recorded and not passed */
#define FENCE_FREES 64          /* frees that close a batch */
#define FENCE_BYTES (256 * MIB) /* waiting bytes that do, where an eighth of the live ones is less */

struct fences {
    _Atomic uint64_t open;                         /* the batch that frees join; its predecessors are sealed */
    _Atomic uint64_t passed;                       /* all up to this one are proved, for every block */
    _Atomic uint64_t marked;                       /* a fence was recorded for all up to this one */
    atomic_bool unsupported;                       /* the device cannot record fences */
    _Atomic uint64_t records_begun, records_ended; /* capture.c */
    _Atomic uint64_t marks_begun, marks_ended;     /* likewise: on one stream */
    pthread_mutex_t lock;                          /* guards the rest */
    struct queued_fence {
        struct device_fence *fence;
        uint64_t batch;
    } queue[FENCES_MOST]; /* a ring, oldest first */
    unsigned first, count;
    bool recording, asking; /* somebody is in the driver for it */
};

void fences_init(struct pool_system *system);
/* Drops what is left of them. */
void fences_destroy(struct pool_system *system);
static inline uint64_t fences_open_batch(const struct fences *fences) {
    return atomic_load(&fences->open);
}
static inline uint64_t fences_marked(const struct fences *fences) {
    return atomic_load_explicit(&fences->marked, memory_order_acquire);
}
/* Seal the open batch: returns its number. What is recorded from now on proves it. */
static inline uint64_t fences_seal(struct fences *fences) {
    return atomic_fetch_add(&fences->open, 1);
}
/* All blocks of batches up to `batch` are proved. */
void fences_prove(struct fences *fences, uint64_t batch);
/* Seal the open batch and record a fence; false when that has to wait (a capture, another recording, too many that have
 * not passed) or failed. `pool` counts it. No lock held. */
bool fences_close(struct pool *pool, bool for_miss);
/* Ask about the recorded fences, for the blocks of a device. True when one has passed. No lock held. */
bool fences_poll(struct pool_system *system, struct device_state *device);
/* Until no other thread is in the driver for fences, which keeps this one from it; a tenth of a second at most. No lock
 * held. */
void fences_await(struct fences *fences);
/* Wait for everything: all batches that are open or sealed now are proved. False when the wait failed or was not
 * possible. No lock held. */
bool fences_settle(struct pool *pool);

#endif
