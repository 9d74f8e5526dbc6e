/* SPDX-License-Identifier: MIT
 *
 * The bracket: blocks the two signals, and takes back those that our own calls have raised.
 */
#include "config/guard.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

static const int guarded_signals[] = {SIGPIPE, SIGXFSZ};
enum { GUARDED_SIGNALS = sizeof(guarded_signals) / sizeof(guarded_signals[0]) };

void guard_enter(struct guard *guard) {
    guard->error = errno;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &guard->cancel_state);
    sigset_t block;
    sigemptyset(&block);
    for (int i = 0; i < GUARDED_SIGNALS; i++) sigaddset(&block, guarded_signals[i]);
    pthread_sigmask(SIG_BLOCK, &block, &guard->mask);
    sigpending(&guard->pending);
}

void guard_leave(const struct guard *guard) {
    sigset_t pending;
    sigpending(&pending);
    for (int i = 0; i < GUARDED_SIGNALS; i++) {
        const int number = guarded_signals[i];
        if (sigismember(&guard->pending, number) || !sigismember(&pending, number)) continue;
        sigset_t raised;
        sigemptyset(&raised);
        sigaddset(&raised, number);
        const struct timespec at_once = {0, 0};
        while (sigtimedwait(&raised, NULL, &at_once) < 0 && errno == EINTR) continue;
    }
    pthread_sigmask(SIG_SETMASK, &guard->mask, NULL);
    int ignored;
    pthread_setcancelstate(guard->cancel_state, &ignored);
    errno = guard->error;
}

void guard_write(int fd, const char *text, size_t length) {
    while (length > 0) {
        ssize_t written = write(fd, text, length);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return;
        text += written;
        length -= (size_t)written;
    }
}
