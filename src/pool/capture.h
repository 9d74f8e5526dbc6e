/* SPDX-License-Identifier: MIT
 *
 * Stream captures, and what of ours excludes one another with them.
 * Included by internal.h alone.
 */
#ifndef POOLCUDA_POOL_CAPTURE_H
#define POOLCUDA_POOL_CAPTURE_H

/* A wait for the device breaks the captures on it, though the free that waits would have harmed none: so the two
 * exclude one another. False while a stream of the process captures; else captures that begin from now on wait for
 * capture_wait_end. */
static inline bool capture_counted_begin(struct pool_system *system, _Atomic uint64_t *begun) {
    atomic_fetch_add(begun, 1);
    if (__builtin_expect(atomic_load(&system->captures) == 0, 1)) return true;
    atomic_fetch_sub(begun, 1);
    return false;
}
static inline bool capture_wait_begin(struct pool *pool) {
    return capture_counted_begin(pool->system, &pool->waits_begun);
}
/* The same, counted by a front. */
static inline bool capture_front_wait_begin(struct pool_system *system, struct front *front) {
    return capture_counted_begin(system, &front->waits_begun);
}
/* To give memory back harms no capture where the device says so; captures that begin meanwhile wait all the same. */
static inline bool capture_release_begin(struct pool *pool) {
    const struct device_ops *ops = pool->system->ops;
    if (capture_wait_begin(pool)) return true;
    if (!ops->releases_in_captures(ops->self)) return false;
    atomic_fetch_add(&pool->waits_begun, 1);
    return true;
}
/* The same for a recording, which breaks captures too. */
static inline bool capture_record_begin(struct pool_system *system) {
    atomic_fetch_add(&system->fences.records_begun, 1);
    if (__builtin_expect(atomic_load(&system->captures) == 0, 1)) return true;
    atomic_fetch_add(&system->fences.records_ended, 1);
    return false;
}
static inline void capture_record_end(struct pool_system *system) {
    atomic_fetch_add(&system->fences.records_ended, 1);
}
/* Where the thread cannot leave the mode of a capture for it, a question about an event would break it. */
static inline bool capture_ask_begin(struct pool_system *system) {
    return system->ops->releases_in_captures(system->ops->self) || capture_record_begin(system);
}
static inline void capture_ask_end(struct pool_system *system) {
    if (!system->ops->releases_in_captures(system->ops->self)) capture_record_end(system);
}
/* The same for a recording on one created stream: it may wait for room there, so captures wait for it for a while only.
 * It harms none but a capture on that very stream, and then it proves nothing. */
static inline bool capture_mark_begin(struct pool_system *system) {
    atomic_fetch_add(&system->fences.marks_begun, 1);
    if (__builtin_expect(atomic_load(&system->captures) == 0, 1)) return true;
    atomic_fetch_add(&system->fences.marks_ended, 1);
    return false;
}
static inline void capture_mark_end(struct pool_system *system) {
    atomic_fetch_add(&system->fences.marks_ended, 1);
}
static inline void capture_counted_end(_Atomic uint64_t *ended) {
    const uint64_t before = atomic_load_explicit(ended, memory_order_relaxed);
    atomic_store_explicit(ended, before + 1, memory_order_release);
}
/* Under pool->lock; the other under the front's. */
static inline void capture_wait_end(struct pool *pool) {
    capture_counted_end(&pool->waits_ended);
}
static inline void capture_front_wait_end(struct front *front) {
    capture_counted_end(&front->waits_ended);
}

/* May the thread free memory now? Asks the driver with a small allocation, which is freed at once (`wait`: so the
 * driver's free waits as it would for the program), or else kept until the captures end. 0, or the driver's refusal. No
 * lock held. */
int capture_ask(struct pool *pool, bool wait);
/* What is left when a capture begins meanwhile, or while its context is being closed, is kept until the next one ends.
 */
void capture_release_probes(struct pool_system *system);
/* The pool for which the allocation at `address` is kept as capture_ask says, NULL when none is: the program, which was
 * never given it, may free what lay there before a second time. No lock held. */
struct pool *capture_kept_for(struct pool_system *system, uint64_t address);

#endif
