/* SPDX-License-Identifier: MIT
 *
 * The program stays in our process group, so that terminal and job control are its own, and what the terminal sends
 * (an interrupt, a hang-up, a stop) reaches it without us; such signals end the program or not, and only then us. What
 * is sent to us alone, by kill, is passed on. When the program stops we stop, so that the shell sees the job do it.
 */
#include "supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS 20 /* at the folder, where nothing tells when it changes */

/* Those that people send to programs. The ones that a fault raises stay as they are. */
static const int passed_on[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM, SIGUSR1,   SIGUSR2, SIGALRM,
                                SIGTSTP, SIGCONT, SIGURG,  SIGIO,   SIGVTALRM, SIGPROF, SIGWINCH};

struct state {
    pid_t child;
    int signals;               /* signalfd */
    sigset_t before;           /* mask that we were started with */
    struct sigaction on_child; /* likewise what SIGCHLD does */
};

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Signals are held from here on, and read from a descriptor: none is lost between fork and exec. */
static bool hold_signals(struct state *state) {
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGCHLD);
    for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++) sigaddset(&held, passed_on[i]);
    /* Ignored, it would take away how the child ended. */
    if (sigaction(SIGCHLD, &(struct sigaction){.sa_handler = SIG_DFL}, &state->on_child) != 0 ||
        sigprocmask(SIG_BLOCK, &held, &state->before) != 0)
        return false;
    state->signals = signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK);
    return state->signals >= 0;
}

/* errno of the child's exec, or 0: the pipe closes when it succeeds. */
static int exec_error(int fd) {
    int error = 0;
    ssize_t got;
    do {
        got = read(fd, &error, sizeof(error));
    } while (got < 0 && errno == EINTR);
    close(fd);
    return got == (ssize_t)sizeof(error) ? error : 0;
}

static int start(struct state *state, char **argv) {
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) != 0) return errno;
    state->child = fork();
    if (state->child == 0) {
        sigaction(SIGCHLD, &state->on_child, NULL);
        sigprocmask(SIG_SETMASK, &state->before, NULL);
        execvp(argv[0], argv);
        const int error = errno;
        const ssize_t ignored = write(pipe_fds[1], &error, sizeof(error));
        _exit(ignored == (ssize_t)sizeof(error) ? 127 : 126);
    }
    const int error = errno;
    close(pipe_fds[1]);
    if (state->child < 0) {
        close(pipe_fds[0]);
        return error;
    }
    const int failed = exec_error(pipe_fds[0]);
    if (failed != 0) waitpid(state->child, NULL, 0);
    return failed;
}

/* What came from the kernel (a terminal) went to the whole group, and what the program sent, to its group or to us, it
 * knows of. */
static void pass_on(const struct state *state) {
    struct signalfd_siginfo information;
    while (read(state->signals, &information, sizeof(information)) == (ssize_t)sizeof(information))
        if (information.ssi_signo != SIGCHLD && information.ssi_code <= 0 &&
            information.ssi_pid != (uint32_t)state->child)
            kill(state->child, (int)information.ssi_signo);
}

/* False when it has ended. */
static bool follow(const struct state *state, int *status) {
    const pid_t changed = waitpid(state->child, status, WNOHANG | WUNTRACED);
    if (changed != state->child) return true;
    if (!WIFSTOPPED(*status)) return false;
    if (WSTOPSIG(*status) == SIGSTOP) return true; /* not the terminal's doing, and who did it may not know of us */
    raise(SIGSTOP);
    kill(state->child, SIGCONT); /* we go on, whoever wanted it */
    return true;
}

void supervise(char **argv, struct watch *watch, struct outcome *outcome) {
    struct state state = {.signals = -1};
    *outcome = (struct outcome){0};
    const uint64_t begin = now_ns();
    if (!hold_signals(&state))
        outcome->error = errno;
    else
        outcome->error = start(&state, argv);
    if (outcome->error == 0) watch_program(watch, state.child);
    while (outcome->error == 0 && follow(&state, &outcome->status)) {
        struct pollfd awaited[] = {{.fd = state.signals, .events = POLLIN}, {.fd = watch->fd, .events = POLLIN}};
        watch_look(watch);
        poll(awaited, 2, watch->fd < 0 ? LOOK_MS : -1);
        pass_on(&state);
    }
    watch_look(watch); /* a program that was killed left it behind */
    outcome->ran_ns = now_ns() - begin;
    if (state.signals >= 0) close(state.signals);
}
