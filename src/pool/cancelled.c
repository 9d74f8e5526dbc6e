/* SPDX-License-Identifier: MIT
 *
 * Threads that are cancelled while a free of theirs waits for the device. The driver may be a cancellation point, and
 * its wait is left alone; but captures would take the wait for one that goes on, and be held up by it each time. So the
 * thread keeps in sight which front counts its wait, and at its end ends the wait.
 */
#include "pool/internal.h"

#include <errno.h>

_Thread_local struct front *cancelled_wait __attribute__((tls_model("initial-exec")));

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool key_made;
static _Thread_local bool watched __attribute__((tls_model("initial-exec")));

static void end_wait(void *unused) {
    (void)unused;
    struct front *front = cancelled_wait;
    if (!front) return;
    cancelled_wait = NULL;
    lock_take(&front->lock);
    capture_front_wait_end(front);
    lock_give(&front->lock);
}

static void make_key(void) {
    key_made = pthread_key_create(&key, end_wait) == 0;
}

void cancelled_watch(void) {
    if (watched) return;
    const int error = errno;
    pthread_once(&once, make_key);
    watched = key_made && pthread_setspecific(key, &watched) == 0;
    errno = error;
}
