/* SPDX-License-Identifier: MIT
 *
 * Reads the state of the process from the kernel and from libc, without changing it.
 */
#include "host_state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <limits.h>
#include <locale.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __x86_64__
#include <xmmintrin.h>
#endif

extern char **environ;

#define EXPORTS "/dev/shm/poolcuda-ipc-" /* the one file that stays open: README, Caveats */

enum { SIGNALS = 64, DESCRIPTORS = 256, ODD_ERROR = 4321, TEXT = 512 };

struct descriptor {
    int number, flags, status;
    char target[96];
};

struct action {
    void (*handler)(int);
    int flags;
    uint64_t mask; /* what the kernel knows of a sigset_t */
};

struct picture {
    struct action actions[SIGNALS + 1];
    sigset_t mask, pending;
    stack_t signal_stack;
    mode_t umask;
    int rounding, exceptions;
    unsigned control;
    char locale[TEXT];
    locale_t thread_locale;
    char directory[PATH_MAX];
    char **environment;
    uint64_t environment_hash;
    struct rlimit limits[RLIM_NLIMITS];
    int cancel_state, cancel_type;
    char thread_name[16];
    cpu_set_t cpus;
    int nice, dumpable;
    unsigned signals;
    unsigned descriptors;
    struct descriptor descriptor[DESCRIPTORS];
};

static atomic_uint raised;

static void note_signal(int number) {
    (void)number;
    atomic_fetch_add(&raised, 1);
}

unsigned state_signals(void) {
    return atomic_load(&raised);
}

static void list_descriptors(struct picture *picture, bool all) {
    DIR *folder = opendir("/proc/self/fd");
    picture->descriptors = 0;
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL && picture->descriptors < DESCRIPTORS;) {
        struct descriptor *found = &picture->descriptor[picture->descriptors];
        char path[300];
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == dirfd(folder)) continue;
        memset(found, 0, sizeof *found);
        found->number = atoi(entry->d_name);
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        if (readlink(path, found->target, sizeof found->target - 1) < 0) continue;
        if (strstr(found->target, "memfd:")) continue;
        if (!all && (strstr(found->target, "socket:") || strstr(found->target, EXPORTS))) continue;
        found->flags = fcntl(found->number, F_GETFD);
        found->status = fcntl(found->number, F_GETFL);
        picture->descriptors++;
    }
    closedir(folder);
}

static uint64_t hash_environment(void) {
    uint64_t hash = 5381;
    for (char **entry = environ; entry && *entry; entry++) {
        hash = hash * 33 + (uint64_t)(uintptr_t)*entry;
        for (const char *at = *entry; *at; at++) hash = hash * 33 + (unsigned char)*at;
    }
    return hash;
}

/* Everything but errno, which comes first or last. */
static void take(struct picture *picture, bool all) {
    memset(picture, 0, sizeof *picture);
    picture->exceptions = fetestexcept(FE_ALL_EXCEPT);
    picture->rounding = fegetround();
#ifdef __x86_64__
    picture->control = _mm_getcsr();
    unsigned short word;
    __asm__("fnstcw %0" : "=m"(word));
    picture->control ^= (unsigned)word << 16;
#endif
    pthread_sigmask(SIG_SETMASK, NULL, &picture->mask);
    sigpending(&picture->pending);
    for (int i = 1; i <= SIGNALS; i++) {
        struct sigaction action;
        memset(&action, 0, sizeof action);
        if (sigaction(i, NULL, &action)) continue;
        picture->actions[i].handler = action.sa_handler;
        picture->actions[i].flags = action.sa_flags;
        memcpy(&picture->actions[i].mask, &action.sa_mask, sizeof picture->actions[i].mask);
    }
    sigaltstack(NULL, &picture->signal_stack);
    picture->umask = umask(0);
    umask(picture->umask);
    snprintf(picture->locale, sizeof picture->locale, "%s", setlocale(LC_ALL, NULL));
    picture->thread_locale = uselocale((locale_t)0);
    if (!getcwd(picture->directory, sizeof picture->directory)) picture->directory[0] = '\0';
    picture->environment = environ;
    picture->environment_hash = hash_environment();
    for (int i = 0; i < (int)RLIM_NLIMITS; i++) getrlimit((__rlimit_resource_t)i, &picture->limits[i]);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &picture->cancel_state);
    pthread_setcancelstate(picture->cancel_state, NULL);
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &picture->cancel_type);
    pthread_setcanceltype(picture->cancel_type, NULL);
    prctl(PR_GET_NAME, picture->thread_name);
    sched_getaffinity(0, sizeof picture->cpus, &picture->cpus);
    picture->nice = getpriority(PRIO_PROCESS, 0);
    picture->dumpable = prctl(PR_GET_DUMPABLE);
    picture->signals = state_signals();
    list_descriptors(picture, all);
}

void state_unusual(void) {
    static char signal_stack[64 << 10];
    static const int handled[] = {SIGPIPE, SIGXFSZ, SIGUSR1, SIGUSR2, SIGTERM, SIGALRM};
    struct sigaction action = {.sa_handler = note_signal, .sa_flags = SA_RESTART | SA_ONSTACK};
    sigaddset(&action.sa_mask, SIGHUP);
    for (size_t i = 0; i < sizeof handled / sizeof handled[0]; i++) sigaction(handled[i], &action, NULL);
    signal(SIGQUIT, SIG_IGN);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    sigaddset(&mask, SIGWINCH);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    raise(SIGUSR2); /* stays pending */
    const stack_t stack = {.ss_sp = signal_stack, .ss_size = sizeof signal_stack};
    sigaltstack(&stack, NULL);
    umask(0137);
    fesetround(FE_UPWARD);
    feclearexcept(FE_ALL_EXCEPT);
#ifdef __x86_64__
    _mm_setcsr(_mm_getcsr() | 0x8040); /* flush to zero, denormals are zero */
#endif
    setlocale(LC_ALL, "C.UTF-8");
    setenv("HOST_STATE", "here", 1);
    const struct rlimit files = {200, 1000};
    setrlimit(RLIMIT_NOFILE, &files);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, NULL);
    prctl(PR_SET_NAME, "unusual");
}

/* One thread looks. */
static struct picture before, after;
static char text[TEXT];

void state_before(void) {
    take(&before, false);
    feclearexcept(FE_ALL_EXCEPT);
    before.exceptions = 0;
#ifdef __x86_64__
    unsigned short word;
    __asm__("fnstcw %0" : "=m"(word));
    before.control = _mm_getcsr() ^ (unsigned)word << 16;
#endif
    errno = ODD_ERROR;
}

static void add(bool changed, const char *name) {
    if (!changed) return;
    const size_t length = strlen(text);
    snprintf(text + length, sizeof text - length, " %s", name);
}

const char *state_changed(void) {
    const int error = errno;
    take(&after, false);
    text[0] = '\0';
    add(error != ODD_ERROR, "errno");
#define SAME(field, name) add(memcmp(&before.field, &after.field, sizeof before.field) != 0, name)
    SAME(exceptions, "exceptions");
    SAME(rounding, "rounding");
    SAME(control, "control");
    SAME(mask, "mask");
    SAME(pending, "pending");
    for (int i = 1; i <= SIGNALS; i++) {
        char name[32];
        snprintf(name, sizeof name, "signal-%d", i);
        SAME(actions[i], name);
    }
    SAME(signal_stack, "signal-stack");
    SAME(umask, "umask");
    SAME(locale, "locale");
    SAME(thread_locale, "thread-locale");
    SAME(directory, "directory");
    SAME(environment, "environ");
    SAME(environment_hash, "environment");
    SAME(limits, "limits");
    SAME(cancel_state, "cancel-state");
    SAME(cancel_type, "cancel-type");
    SAME(thread_name, "thread-name");
    SAME(cpus, "cpus");
    SAME(nice, "nice");
    SAME(dumpable, "dumpable");
    SAME(signals, "signals-raised");
    SAME(descriptors, "descriptors");
    add(memcmp(before.descriptor, after.descriptor, after.descriptors * sizeof after.descriptor[0]) != 0, "descriptor");
    return text;
}

void state_descriptors(char *give, unsigned size) {
    take(&after, true);
    give[0] = '\0';
    for (unsigned i = 0; i < after.descriptors; i++) {
        const struct descriptor *one = &after.descriptor[i];
        const size_t length = strlen(give);
        char number[16] = "";
        if (one->number <= STDERR_FILENO) snprintf(number, sizeof number, " %d", one->number);
        snprintf(give + length, size - length, "descriptor%s: %s%s\n", number, one->target,
                 one->flags & FD_CLOEXEC ? "" : " inherited");
    }
}
