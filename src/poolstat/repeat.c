/* SPDX-License-Identifier: MIT
 *
 * The loop. A signal that ends it is let in between two answers, so that no answer is cut off in its midst; only a
 * write that its reader keeps waiting is broken off.
 */
#include "repeat.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static const int ending[] = {SIGINT, SIGTERM, SIGHUP};
#define ENDING (sizeof(ending) / sizeof(ending[0]))

static volatile sig_atomic_t ended_by;

static void note_signal(int number) {
    ended_by = number;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void catch_signals(void) {
    for (size_t i = 0; i < ENDING; i++) {
        struct sigaction action;
        sigaction(ending[i], NULL, &action);
        if (action.sa_handler == SIG_IGN) continue;             /* as nohup wants it */
        action = (struct sigaction){.sa_handler = note_signal}; /* without SA_RESTART */
        sigaction(ending[i], &action, NULL);
    }
}

/* By the signal itself, so that whoever started us sees it. */
static void die_of(int number) {
    signal(number, SIG_DFL);
    raise(number);
}

/* False when a signal came, or the reader of stdout has gone. */
static bool wait_until(uint64_t time_ns) {
    sigset_t held, before;
    bool goes_on = true;
    sigemptyset(&held);
    for (size_t i = 0; i < ENDING; i++) sigaddset(&held, ending[i]);
    sigprocmask(SIG_BLOCK, &held, &before);
    for (uint64_t now; goes_on && ended_by == 0 && (now = now_ns()) < time_ns;) {
        const struct timespec left = {.tv_sec = (time_t)((time_ns - now) / 1000000000u),
                                      .tv_nsec = (long)((time_ns - now) % 1000000000u)};
        struct pollfd reader = {.fd = STDOUT_FILENO}; /* no event but that it has gone */
        goes_on = ppoll(&reader, 1, &left, &before) <= 0;
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return goes_on && ended_by == 0;
}

static bool is_final(int code, bool patient) {
    return code == CODE_USAGE || code == CODE_GONE || code == CODE_FAILED || (!patient && code != CODE_OK);
}

bool repeat_is_asked(const struct options *options) {
    return !options->once && (options->delay_ns != 0 || options->count != 0);
}

int repeat(const struct options *options, bool patient,
           int (*answer)(const struct options *options, uint64_t turn, void *context), void *context) {
    const uint64_t delay = options->delay_ns == 0 ? REPEAT_DEFAULT_NS : options->delay_ns;
    uint64_t next = now_ns();
    if (!repeat_is_asked(options)) return answer(options, 0, context);
    catch_signals();
    for (uint64_t turn = 0;; turn++) {
        const int code = answer(options, turn, context);
        const bool is_written = fflush(stdout) == 0 && !ferror(stdout);
        if (ended_by != 0) die_of(ended_by);
        if (!is_written || is_final(code, patient) || turn + 1 == options->count) return code;
        const uint64_t now = now_ns();
        next += delay;
        if (next < now) next = now; /* what was missed is not made up for */
        if (wait_until(next)) continue;
        if (ended_by != 0) die_of(ended_by);
        raise(SIGPIPE); /* as the next write would */
        return 128 + SIGPIPE;
    }
}
