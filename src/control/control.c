/* SPDX-License-Identifier: MIT
 *
 * Takes requests up, carries them out and answers them; and the life of the thread that waits for them.
 */
#include "control/control.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <time.h>
#include <unistd.h>

#include "config/config.h"
#include "config/guard.h"
#include "config/log.h"
#include "control/file.h"
#include "pool/pool.h"
#include "stats/writer.h"

#define STACK_BYTES (256 * 1024) /* the driver's calls may need some */
#define PAUSE_NS 2000000         /* between two looks: whoever floods the file costs the program little */
#define STEP_NS 1000000
#define FINISH_STEPS 200 /* a fifth of a second */

enum phase { NOT_STARTED, STARTING, ATTENDED, UNATTENDED, NONE };
static _Atomic int phase;

static _Atomic(struct pool_system *) served;
/* Somebody looks at the file or carries a request out; or, at the end, nobody does any more. Guards what follows, and
 * what file.c has. */
static atomic_bool busy;
static uint32_t answered; /* the sequence of the last request */

static bool become_busy(void) {
    return !atomic_exchange_explicit(&busy, true, memory_order_acquire);
}

static void be_free(void) {
    atomic_store_explicit(&busy, false, memory_order_release);
}

/* ---- requests ---- */

static void set_limit(struct pool_system *system, uint64_t bytes, struct poolcuda_control_answer *answer) {
    const bool none = bytes == CONFIG_NONE;
    if (!none && (bytes < POOLCUDA_CONTROL_LIMIT_LEAST || bytes > POOLCUDA_CONTROL_LIMIT_MOST)) {
        answer->code = POOLCUDA_CONTROL_CODE_bad_value;
        return;
    }
    struct pool_limit_change change;
    pool_set_limit(system, bytes, &change);
    answer->given_back_bytes = change.given_back;
    answer->limit_bytes_before = change.before;
    answer->over_limit_bytes = change.over;
}

static void tell_totals(struct pool_system *system, struct poolcuda_control_answer *answer) {
    struct pool_totals totals;
    pool_totals(system, -1, &totals);
    answer->reserved_bytes = totals.reserved;
    answer->live_bytes = totals.live;
    answer->cached_bytes = totals.idle + totals.ordered + totals.waiting;
    answer->limit_bytes = pool_limit(system);
}

static void carry_out(const struct poolcuda_control_request *request, struct poolcuda_control_answer *answer) {
    struct pool_system *system = atomic_load_explicit(&served, memory_order_acquire);
    answer->code = POOLCUDA_CONTROL_CODE_done;
    if (request->command == POOLCUDA_CONTROL_COMMAND_none) return;
    if (request->command >= POOLCUDA_CONTROL_COMMAND_COUNT) {
        answer->code = POOLCUDA_CONTROL_CODE_unknown_command;
        return;
    }
    if (!system) {
        answer->code = POOLCUDA_CONTROL_CODE_not_pooled;
        return;
    }
    answer->limit_bytes_before = pool_limit(system);
    if (request->command == POOLCUDA_CONTROL_COMMAND_trim)
        answer->given_back_bytes = pool_trim_all(system, request->value);
    else if (request->command == POOLCUDA_CONTROL_COMMAND_limit)
        set_limit(system, request->value, answer);
    else
        pool_reset_peaks(system);
    tell_totals(system, answer);
}

static void tell(const struct poolcuda_control_request *request, const struct poolcuda_control_answer *answer) {
#define COMMAND_NAME(name, help) #name,
    static const char *const commands[] = {POOLCUDA_CONTROL_COMMANDS(COMMAND_NAME)};
#undef COMMAND_NAME
#define CODE_NAME(name, help) #name,
    static const char *const codes[] = {POOLCUDA_CONTROL_CODES(CODE_NAME)};
#undef CODE_NAME
    const bool known = request->command < POOLCUDA_CONTROL_COMMAND_COUNT;
    log_line(LOG_EVENT, "control: %s %llu: %s, %llu bytes given back", known ? commands[request->command] : "request",
             (unsigned long long)request->value, codes[answer->code], (unsigned long long)answer->given_back_bytes);
}

/* Take up what is asked, if anything is. Whoever calls is busy. */
static void look(void) {
    struct poolcuda_control_request request;
    if (!control_file_request(&request) || request.sequence == answered) return;
    answered = request.sequence;
    struct poolcuda_control_answer answer = {.sequence = answered, .code = POOLCUDA_CONTROL_CODE_taken};
    control_file_answer(&answer);
    carry_out(&request, &answer);
    tell(&request, &answer);
    control_file_answer(&answer);
}

/* ---- who looks ---- */

/* The program ends, and with it this. To end before would run what others have registered for the ends of threads. */
static void sleep_for_good(void) {
    for (;;) pause();
}

static void *attend(void *unused) {
    const struct timespec pause = {0, PAUSE_NS};
    (void)unused;
    pthread_setname_np(pthread_self(), "poolcuda-ctl");
    for (;;) {
        if (!become_busy()) sleep_for_good();
        look();
        be_free();
        control_file_wait();
        nanosleep(&pause, NULL);
    }
    return NULL;
}

void control_attend(void) {
    if (__builtin_expect(atomic_load_explicit(&phase, memory_order_acquire) != UNATTENDED, 1)) return;
    if (!become_busy()) return;
    struct guard guard;
    guard_enter(&guard);
    look();
    guard_leave(&guard);
    be_free();
}

/* With all signals blocked from its first moment on. The code of pthread_create. */
static int start_thread(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    int code = pthread_attr_init(&attributes);
    if (code != 0) return code;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    /* Where the thread-local variables of the program leave no room in a small stack, one of the ordinary size. */
    if (pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0)
        code = pthread_create(&thread, &attributes, attend, NULL);
    if (code == EINVAL) {
        pthread_attr_destroy(&attributes);
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        code = pthread_create(&thread, &attributes, attend, NULL);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return code;
}

/* ---- beginning and end ---- */

static const char *reason_of(int error) {
    const char *reason = strerrordesc_np(error);
    return reason ? reason : "unknown error";
}

static enum phase start(void) {
    const char *step;
    if (!stats_published()) {
        log_line(LOG_ALWAYS, "POOL_CONTROL needs figures, and there are none: requests are not accepted");
        return NONE;
    }
    if (!control_file_make(&step)) {
        log_line(LOG_ALWAYS, "POOL_CONTROL: cannot %s the control file: %s: requests are not accepted", step,
                 reason_of(errno));
        return NONE;
    }
    const int code = start_thread();
    if (code == 0) return ATTENDED;
    log_line(LOG_WARNING, "POOL_CONTROL: no thread can be started: %s: requests wait until the pool next grows",
             reason_of(code));
    return UNATTENDED;
}

void control_start(void) {
    int expected = NOT_STARTED;
    if (!config_get()->control || getauxval(AT_SECURE)) return;
    if (!atomic_compare_exchange_strong(&phase, &expected, STARTING)) return;
    struct guard guard;
    guard_enter(&guard);
    const enum phase now = start();
    expected = STARTING;
    atomic_compare_exchange_strong(&phase, &expected, (int)now);
    guard_leave(&guard);
}

void control_serve(struct pool_system *system) {
    atomic_store_explicit(&served, system, memory_order_release);
}

void control_finish(void) {
    const struct timespec step = {0, STEP_NS};
    const int now = atomic_exchange(&phase, NONE);
    if (now != ATTENDED && now != UNATTENDED) return;
    struct guard guard;
    guard_enter(&guard);
    for (int i = 0; i < FINISH_STEPS && !become_busy(); i++) nanosleep(&step, NULL);
    control_file_remove();
    guard_leave(&guard);
}

void control_forget_in_child(void) {
    const int error = errno;
    atomic_store(&served, NULL);
    atomic_store(&busy, false);
    atomic_store(&phase, NOT_STARTED);
    answered = 0;
    control_file_forget();
    errno = error;
}
