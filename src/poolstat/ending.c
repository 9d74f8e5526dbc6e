/* SPDX-License-Identifier: MIT
 *
 * Noting the end.
 */
#include "ending.h"

#include <poll.h>
#include <signal.h>
#include <time.h>

static const int ending[] = {SIGINT, SIGTERM};
#define ENDING (sizeof(ending) / sizeof(ending[0]))

static volatile sig_atomic_t has_come;
static sigset_t before; /* the signals that were blocked */

static void note_signal(int number) {
    (void)number;
    has_come = 1;
}

void ending_watch(void) {
    sigset_t held;
    sigemptyset(&held);
    for (size_t i = 0; i < ENDING; i++) {
        struct sigaction action;
        sigaction(ending[i], NULL, &action);
        if (action.sa_handler == SIG_IGN) continue;
        action = (struct sigaction){.sa_handler = note_signal};
        sigaction(ending[i], &action, NULL);
        sigaddset(&held, ending[i]);
    }
    sigprocmask(SIG_BLOCK, &held, &before);
}

bool ending_came(void) {
    return has_come != 0;
}

void ending_wait(int fd, uint64_t ns) {
    const struct timespec time = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    struct pollfd input = {.fd = fd, .events = POLLIN}; /* a negative one is passed over */
    ppoll(&input, 1, ns == UINT64_MAX ? NULL : &time, &before);
}
