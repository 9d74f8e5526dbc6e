/* SPDX-License-Identifier: MIT
 *
 * The wait for a lock that is taken: see lock.h.
 */
#include "pool/lock.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOKS 64          /* on another processor the holder needs tens of nanoseconds */
#define YIELDS 16         /* it may have lost this one */
#define SLEEP_NS 20000    /* or be of a lower priority, which no yield lets run */
#define SLEEP_MOST 500000 /* ns */

static bool try_take(struct quick_lock *lock) {
    unsigned free = 0;
    return atomic_load_explicit(&lock->held, memory_order_relaxed) == 0 &&
           atomic_compare_exchange_strong_explicit(&lock->held, &free, 1, memory_order_acquire, memory_order_relaxed);
}

static void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void __attribute__((cold, noinline)) lock_await(struct quick_lock *lock) {
    const int error = errno;
    struct timespec sleep = {.tv_nsec = SLEEP_NS};
    for (;;) {
        for (unsigned i = 0; i < YIELDS; i++) {
            for (unsigned k = 0; k < LOOKS; k++) {
                if (try_take(lock)) {
                    errno = error;
                    return;
                }
                pause_briefly();
            }
            sched_yield();
        }
        /* By number: the library's function is a cancellation point. */
        syscall(SYS_nanosleep, &sleep, NULL);
        if (sleep.tv_nsec < SLEEP_MOST) sleep.tv_nsec *= 2;
    }
}
