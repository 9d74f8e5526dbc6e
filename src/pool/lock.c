/* SPDX-License-Identifier: MIT
 *
 * The wait for a lock that is taken: see lock.h. Who waits looks more and more seldom: the lines that the lock guards
 * cost far more to move between processors than what is done with them, so it is better for all that a holder comes
 * back many times before another takes over.
 */
#include "pool/lock.h"

#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAUSES_MOST 16    /* between two looks: half a microsecond */
#define SLEEP_NS 50000    /* the holder may have lost its processor, and no yield would help one of a lower priority */
#define SLEEP_MOST 500000 /* ns */

static void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool look(struct quick_lock *lock) {
    for (unsigned pauses = 8;; pauses *= 2) {
        if (lock_try(lock)) return true;
        if (pauses > PAUSES_MOST) return false;
        for (unsigned i = 0; i < pauses; i++) pause_briefly();
    }
}

void __attribute__((cold, noinline)) lock_await(struct quick_lock *lock) {
    const int error = errno;
    struct timespec sleep = {.tv_nsec = SLEEP_NS};
    while (!look(lock)) {
        /* By number: the library's function is a cancellation point. */
        syscall(SYS_nanosleep, &sleep, NULL);
        if (sleep.tv_nsec < SLEEP_MOST) sleep.tv_nsec *= 2;
    }
    errno = error;
}
