/* SPDX-License-Identifier: MIT
 *
 * `poolstat` on a terminal: the loop of the live view. Signals are blocked and read like keys, so that whatever comes,
 * the terminal is given back first, and nothing is drawn by half.
 */
#include "live.h"

#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "choose.h"
#include "commands.h"
#include "live_keys.h"
#include "live_screen.h"
#include "live_view.h"
#include "report.h"

static const int handled[] = {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT, SIGWINCH};
#define HANDLED (sizeof(handled) / sizeof(handled[0]))

struct loop {
    struct live live;
    int signals;          /* a signalfd */
    sigset_t set, before; /* the signals that it reads; the mask as it was */
    uint64_t next_ns;     /* time of the next refresh */
    uint64_t refreshes;
    int died_of; /* a signal */
    bool changed;
};

static uint64_t now_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void refresh_figures(struct loop *loop) {
    struct live *live = &loop->live;
    struct collection collection;
    choose_collect(&live->options->choice, &collection);
    live->updated_unix_ns = now_ns(CLOCK_REALTIME);
    live_model_update(&live->model, &collection, now_ns(CLOCK_MONOTONIC), live->options->choice.all);
    live_view_follow(live);
    loop->refreshes++;
}

static void draw(struct loop *loop) {
    struct canvas canvas;
    size_t width, height;
    screen_measure(&width, &height);
    canvas_start(&canvas, width, height);
    live_view_draw(&loop->live, &canvas);
    screen_paint(&canvas);
    canvas_free(&canvas);
    loop->changed = false;
}

/* The terminal belongs to others until SIGCONT. */
static const char *suspend(struct loop *loop) {
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    screen_stop();
    signal(SIGTSTP, SIG_DFL);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &stop, NULL);
    sigprocmask(SIG_BLOCK, &stop, NULL);
    return screen_start(loop->live.options->coloured);
}

static const char *take_signal(struct loop *loop) {
    struct signalfd_siginfo info;
    if (read(loop->signals, &info, sizeof(info)) != (ssize_t)sizeof(info)) return NULL;
    loop->changed = true;
    switch (info.ssi_signo) {
    case SIGTSTP:
        return suspend(loop);
    case SIGWINCH:
        return NULL;
    case SIGCONT: /* after a SIGSTOP that could not be seen, the shell has used the terminal */
        screen_stop();
        return screen_start(loop->live.options->coloured);
    default:
        loop->died_of = (int)info.ssi_signo;
        return NULL;
    }
}

/* Waits for a key, a signal, or the next refresh. False when the terminal is gone. */
static bool wait_for_something(struct loop *loop, bool *signalled) {
    const uint64_t now = now_ns(CLOCK_MONOTONIC), left = loop->next_ns > now ? loop->next_ns - now : 0;
    const struct timespec timeout = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
    struct pollfd files[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = loop->signals, .events = POLLIN}};
    const int ready = ppoll(files, 2, loop->live.paused ? NULL : &timeout, NULL);
    *signalled = ready > 0 && (files[1].revents & POLLIN) != 0;
    if (ready <= 0) return ready == 0 || errno == EINTR;
    if (*signalled || (files[0].revents & (POLLIN | POLLHUP | POLLERR | POLLNVAL)) == 0) return true;
    size_t keys = 0;
    for (uint32_t key; !loop->live.over && (key = screen_key()) != LIVE_KEY_NONE; keys++)
        live_view_key(&loop->live, key);
    loop->changed |= keys != 0;
    return keys != 0 || (files[0].revents & POLLIN) != 0;
}

static const char *run(struct loop *loop) {
    const uint64_t most = loop->live.options->count;
    const char *failure = NULL;
    bool signalled, goes_on = true;
    refresh_figures(loop);
    loop->next_ns = now_ns(CLOCK_MONOTONIC) + loop->live.delay_ns;
    draw(loop);
    while (goes_on && failure == NULL && !loop->live.over && loop->died_of == 0) {
        goes_on = wait_for_something(loop, &signalled);
        if (signalled) failure = take_signal(loop);
        const uint64_t now = now_ns(CLOCK_MONOTONIC);
        if (!loop->live.paused && now >= loop->next_ns) {
            if (loop->refreshes == most && most != 0) break;
            refresh_figures(loop);
            loop->changed = true;
            loop->next_ns += loop->live.delay_ns;
            if (loop->next_ns < now) loop->next_ns = now + loop->live.delay_ns; /* what was missed is not made up for */
        }
        if (loop->changed && failure == NULL) draw(loop);
    }
    return failure;
}

static bool hold_signals(struct loop *loop) {
    sigemptyset(&loop->set);
    for (size_t i = 0; i < HANDLED; i++) {
        struct sigaction action;
        sigaction(handled[i], NULL, &action);
        if (action.sa_handler != SIG_IGN || handled[i] == SIGWINCH || handled[i] == SIGCONT)
            sigaddset(&loop->set, handled[i]); /* ignored ones stay so, as nohup wants it */
    }
    sigprocmask(SIG_BLOCK, &loop->set, &loop->before);
    loop->signals = signalfd(-1, &loop->set, SFD_CLOEXEC | SFD_NONBLOCK);
    return loop->signals >= 0;
}

/* By the signal itself, so that whoever started us sees it. */
static void die_of(const struct loop *loop) {
    signal(loop->died_of, SIG_DFL);
    raise(loop->died_of);
    sigprocmask(SIG_SETMASK, &loop->before, NULL);
}

bool live_is_wanted(const struct options_taken *taken) {
    const struct options *options = taken->options;
    const struct command *command = commands_find("live");
    if (taken->help || taken->version || !isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || options->once ||
        options->count != 0 || options->timestamps || !options_fit(taken, command->groups))
        return false;
    const char *name = getenv("TERM"), *refusal = screen_refusal();
    if (refusal != NULL && name != NULL && strcmp(name, "dumb") != 0) report_note("no live view: %s", refusal);
    return refusal == NULL;
}

int command_live(const struct options *options, int argc, char **argv) {
    struct loop loop = {0};
    const char *failure = screen_refusal();
    (void)argc;
    (void)argv;
    if (options->once) return report(options, CODE_USAGE, "live goes on and on; one look: poolstat ls --once");
    if (failure != NULL) return report(options, CODE_USAGE, "no live view: %s; the table: poolstat ls", failure);
    const bool ascii = options->ascii || !screen_is_utf8();
    /* As text_start does; where not even letters are to be more than ASCII, what is more is escaped. */
    if (ascii || setlocale(LC_CTYPE, "C.UTF-8") == NULL) setlocale(LC_CTYPE, "C");
    live_view_start(&loop.live, options, ascii);
    if (!hold_signals(&loop)) return report(options, CODE_FAILED, "signals cannot be read: %s", strerror(errno));
    failure = screen_start(options->coloured);
    if (failure == NULL) failure = run(&loop);
    screen_stop();
    live_view_free(&loop.live);
    close(loop.signals);
    if (loop.died_of != 0) die_of(&loop);
    sigprocmask(SIG_SETMASK, &loop.before, NULL);
    return failure == NULL ? CODE_OK : report(options, CODE_FAILED, "%s", failure);
}
