/* SPDX-License-Identifier: MIT
 *
 * A lock for a few instructions at a time: never held across a call that may block. It is taken by one atomic exchange
 * and given up by a plain store, half of what a mutex costs, and a mutex twice was a third of a hit. The price is paid
 * where threads meet: nobody is woken, so who finds it taken looks again, and then sleeps for moments. Memory
 * of zeroes is a free lock.
 */
#ifndef POOLCUDA_POOL_LOCK_H
#define POOLCUDA_POOL_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>

struct quick_lock {
    atomic_uint held;
};

/* Keeps errno; no cancellation point. */
void lock_await(struct quick_lock *lock);

static inline void lock_take(struct quick_lock *lock) {
    unsigned free = 0;
    if (__builtin_expect(
            !atomic_compare_exchange_strong_explicit(&lock->held, &free, 1, memory_order_acquire, memory_order_relaxed),
            0))
        lock_await(lock);
}

/* True when it was free. */
static inline bool lock_try(struct quick_lock *lock) {
    unsigned free = 0;
    return atomic_load_explicit(&lock->held, memory_order_relaxed) == 0 &&
           atomic_compare_exchange_strong_explicit(&lock->held, &free, 1, memory_order_acquire, memory_order_relaxed);
}

static inline void lock_give(struct quick_lock *lock) {
    atomic_store_explicit(&lock->held, 0, memory_order_release);
}

#endif
