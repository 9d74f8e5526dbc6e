/* SPDX-License-Identifier: MIT
 *
 * The beginning of every call: is the driver open to this thread, which set failures and delays apply; and the life of
 * the process: loading, cuInit, threads that come and go, a fork, the end.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"
#include "../sim.h"

struct entry_page *entry_page;
_Thread_local struct thread *entry_thread __attribute__((tls_model("initial-exec")));

static _Atomic(struct thread *) threads;
static _Atomic(uint64_t) thread_ids;
static pthread_key_t thread_end_key;
static _Atomic(bool) loaded; /* what the constructor has set is seen by each thread that has looked here */
static uint64_t counts_before_reset[NAME_COUNT];
static pthread_mutex_t counts_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static CUresult start_result; /* start_lock; once `started` */
static bool started;
static pid_t loaded_by;
static _Atomic(pid_t) initialised_by;

/* A set failure, delay or need of a name. */
struct rule {
    struct rule *next;
    uint64_t call; /* which one fails, from 1; 0: every one */
    CUresult answer;
    uint32_t microseconds;
    size_t bytes; /* of device memory that each call takes */
    _Atomic(uint64_t) seen;
    bool applies[NAME_COUNT];
};
static struct rule *rules; /* constant after loading */

static struct rule *rule_add(const char *name) {
    struct rule *const rule = calloc(1, sizeof(*rule));
    if (rule == NULL) abort();
    for (unsigned i = 0; i < NAME_COUNT; i++)
        rule->applies[i] = strcmp(name, name_table[i].symbol) == 0 || strcmp(name, name_table[i].base) == 0;
    rule->next = rules;
    rules = rule;
    return rule;
}

static void rule_refuse(const char *variable, const char *entry, const char *expected) {
    fprintf(stderr, "simulated CUDA: %s: expected %s, ignored: %s\n", variable, expected, entry);
}

static void failure_read(const char *entry) {
    char name[64], call[32];
    int answer;
    if (sscanf(entry, "%63[^:]:%31[^:]:%d", name, call, &answer) != 3 || answer <= 0) {
        rule_refuse("SIM_FAIL", entry, "NAME:N:CODE");
        return;
    }
    struct rule *const rule = rule_add(name);
    rule->call = strcmp(call, "*") != 0 ? strtoull(call, NULL, 10) : 0;
    rule->answer = (CUresult)answer;
}

static void latency_read(const char *entry) {
    char name[64];
    unsigned microseconds;
    if (sscanf(entry, "%63[^:]:%u", name, &microseconds) == 2)
        rule_add(name)->microseconds = microseconds;
    else
        rule_refuse("SIM_LATENCY", entry, "NAME:MICROSECONDS");
}

static void takes_read(const char *entry) {
    char name[64];
    unsigned mib;
    if (sscanf(entry, "%63[^:]:%u", name, &mib) == 2)
        rule_add(name)->bytes = (size_t)mib << 20;
    else
        rule_refuse("SIM_TAKES", entry, "NAME:MIB");
}

/* What the driver lacks cannot be found by a look-up; called all the same, it answers as what is not simulated. */
static void missing_read(void) {
    char name[64];
    const char *list = settings.missing;
    while (settings_next_entry(&list, name, sizeof(name))) rule_add(name)->answer = CUDA_ERROR_NOT_SUPPORTED;
    struct rule *newer = NULL;
    for (unsigned i = 0; i < NAME_COUNT; i++) {
        if (name_table[i].version <= (int)settings.driver_version) continue;
        if (newer == NULL) newer = rule_add("");
        newer->answer = CUDA_ERROR_NOT_SUPPORTED;
        newer->applies[i] = true;
    }
}

static void rules_read(void) {
    char entry[128];
    const char *list = settings.fail;
    while (settings_next_entry(&list, entry, sizeof(entry))) failure_read(entry);
    list = settings.latency;
    while (settings_next_entry(&list, entry, sizeof(entry))) latency_read(entry);
    list = settings.takes;
    while (settings_next_entry(&list, entry, sizeof(entry))) takes_read(entry);
    missing_read();
}

/* Where no context is current, the first device gives it for good. */
static bool rule_take(const struct rule *rule) {
    if (rule->bytes == 0) return true;
    struct context *context;
    if (context_current(entry_current_thread(), &context) != CUDA_SUCCESS) context = NULL;
    pthread_mutex_lock(&memory_lock);
    const bool taken =
        context != NULL ? memory_take_for_driver(context, rule->bytes) : backing_charge(&devices[0], rule->bytes);
    pthread_mutex_unlock(&memory_lock);
    return taken;
}

CUresult entry_apply_rules(enum driver_name name) {
    for (struct rule *rule = rules; rule != NULL; rule = rule->next) {
        if (!rule->applies[name]) continue;
        entry_delay(rule->microseconds);
        if (!rule_take(rule)) return CUDA_ERROR_OUT_OF_MEMORY;
        if (rule->answer == CUDA_SUCCESS) continue;
        const uint64_t call = atomic_fetch_add(&rule->seen, 1) + 1;
        if (rule->call == 0 || rule->call == call) return rule->answer;
    }
    return CUDA_SUCCESS;
}

CUresult entry_refuse(const struct thread *thread, enum driver_name name) {
    switch (atomic_load_explicit(&entry_page->state, memory_order_acquire)) {
    case ENTRY_CLOSED:
        return CUDA_ERROR_NOT_INITIALIZED;
    case ENTRY_DOWN:
        return CUDA_ERROR_DEINITIALIZED;
    default:
        break;
    }
    if (thread->in_callback) return CUDA_ERROR_NOT_PERMITTED;
    return entry_apply_rules(name);
}

/* Short times are spent spinning, as a driver call spends them; sleeping would take at least 50 microseconds more. */
void entry_delay(uint32_t microseconds) {
    if (microseconds == 0) return;
    const uint64_t until = scheduler_now_ns() + (uint64_t)microseconds * 1000;
    if (microseconds > 300) {
        const struct timespec most = {.tv_sec = (microseconds - 200) / 1000000,
                                      .tv_nsec = (long)((microseconds - 200) % 1000000) * 1000};
        nanosleep(&most, NULL);
    }
    while (scheduler_now_ns() < until) continue;
}

static struct thread *thread_take_over(void) {
    for (struct thread *thread = atomic_load(&threads); thread != NULL; thread = atomic_load(&thread->next)) {
        bool taken = false;
        if (atomic_compare_exchange_strong(&thread->taken, &taken, true)) return thread;
    }
    return NULL;
}

static struct thread *thread_make(void) {
    struct thread *const thread = calloc(1, sizeof(*thread));
    if (thread == NULL) abort();
    atomic_store(&thread->taken, true);
    struct thread *first = atomic_load(&threads);
    do {
        atomic_store(&thread->next, first);
    } while (!atomic_compare_exchange_weak(&threads, &first, thread));
    return thread;
}

/* Without a lock, since a forked child may come here while another thread of its parent held one. */
struct thread *entry_attach(void) {
    const int before = errno;
    (void)atomic_load_explicit(&loaded, memory_order_acquire);
    struct thread *thread = thread_take_over();
    if (thread == NULL) thread = thread_make();
    thread->id = atomic_fetch_add(&thread_ids, 1) + 1;
    entry_thread = thread;
    pthread_setspecific(thread_end_key, thread);
    errno = before;
    return thread;
}

static void thread_end(void *argument) {
    struct thread *const thread = argument;
    if (atomic_load(&entry_page->state) == ENTRY_OPEN || atomic_load(&entry_page->state) == ENTRY_WATCHED)
        streams_thread_discard(thread);
    thread->current = NULL;
    thread->stack_depth = 0;
    thread->capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    entry_thread = NULL;
    atomic_store(&thread->taken, false);
}

static uint64_t count_total(enum driver_name name) {
    uint64_t total = 0;
    for (struct thread *thread = atomic_load(&threads); thread != NULL; thread = atomic_load(&thread->next))
        total += atomic_load_explicit(&thread->counts[name], memory_order_relaxed);
    return total;
}

uint64_t entry_count(enum driver_name name) {
    pthread_mutex_lock(&counts_lock);
    const uint64_t count = count_total(name) - counts_before_reset[name];
    pthread_mutex_unlock(&counts_lock);
    return count;
}

void entry_counts_reset(void) {
    pthread_mutex_lock(&counts_lock);
    for (unsigned name = 0; name < NAME_COUNT; name++) counts_before_reset[name] = count_total((enum driver_name)name);
    pthread_mutex_unlock(&counts_lock);
}

int names_unsimulated(enum driver_name name) {
    struct thread *const thread = entry_current_thread();
    const CUresult refusal = entry_begin(thread, name);
    return refusal != CUDA_SUCCESS ? (int)refusal : CUDA_ERROR_NOT_SUPPORTED;
}

static void counts_write(const char *path) {
    FILE *const file = fopen(path, "we");
    if (file == NULL) {
        fprintf(stderr, "simulated CUDA: SIM_COUNTS_FILE=%s: %s\n", path, strerror(errno));
        return;
    }
    for (unsigned name = 0; name < NAME_COUNT; name++) {
        const uint64_t count = entry_count((enum driver_name)name);
        if (count == 0) continue;
        fprintf(file, "%s %llu %s\n", name_table[name].symbol, (unsigned long long)count,
                names_is_simulated((enum driver_name)name) ? "simulated" : "unsimulated");
    }
    fclose(file);
}

__attribute__((constructor)) static void library_load(void) {
    entry_page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (entry_page == MAP_FAILED || pthread_key_create(&thread_end_key, thread_end) != 0) abort();
    madvise(entry_page, (size_t)sysconf(_SC_PAGESIZE), MADV_WIPEONFORK);
    loaded_by = getpid();
    settings_read();
    exports_hide_missing();
    rules_read();
    if (settings.races > 0) sim_races_start();
    atomic_store_explicit(&loaded, true, memory_order_release);
}

/* Calls made after this, by handlers and destructors registered before cuInit, are told that the driver is gone. */
static void driver_end(void) {
    if (atomic_load(&entry_page->state) != ENTRY_CLOSED) atomic_store(&entry_page->state, ENTRY_DOWN);
}

__attribute__((destructor)) static void library_end(void) {
    driver_end();
    if (settings.counts_file != NULL && getpid() == loaded_by) counts_write(settings.counts_file);
}

static CUresult driver_start(void) {
    CUresult result = devices_start();
    if (result == CUDA_SUCCESS) result = contexts_start();
    for (int i = 0; i < device_count && result == CUDA_SUCCESS; i++) {
        result = backing_start(&devices[i]);
        if (result == CUDA_SUCCESS) result = pools_start(&devices[i]);
    }
    if (result != CUDA_SUCCESS) return result;
    atexit(driver_end);
    atomic_store(&initialised_by, getpid());
    atomic_store_explicit(&entry_page->state, rules != NULL ? ENTRY_WATCHED : ENTRY_OPEN, memory_order_release);
    return CUDA_SUCCESS;
}

/* A tool that the user asks for is loaded when the driver has started, and told. */
static void tool_load(void) {
    const char *const path = getenv("CUDA_INJECTION64_PATH");
    void *const library = path != NULL && *path != '\0' ? dlopen(path, RTLD_NOW) : NULL;
    int (*begin)(void) = NULL;
    if (library != NULL) *(void **)&begin = dlsym(library, "InitializeInjection");
    if (begin != NULL) begin();
}

CUresult cuInit(unsigned int flags) {
    struct thread *const thread = entry_current_thread();
    entry_note(thread, NAME_cuInit);
    switch (atomic_load_explicit(&entry_page->state, memory_order_acquire)) {
    case ENTRY_DOWN:
        return CUDA_ERROR_DEINITIALIZED;
    case ENTRY_CLOSED:
        if (atomic_load(&initialised_by) != 0 && atomic_load(&initialised_by) != getpid())
            return CUDA_ERROR_NOT_INITIALIZED;
        break;
    default:
        break;
    }
    const CUresult answer = entry_apply_rules(NAME_cuInit);
    if (answer != CUDA_SUCCESS) return answer;
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&start_lock);
    const bool first = !started;
    if (first) {
        start_result = driver_start();
        started = true;
    }
    const CUresult result = start_result;
    pthread_mutex_unlock(&start_lock);
    if (first && result == CUDA_SUCCESS) tool_load();
    return result;
}

CUresult cuDriverGetVersion(int *version) {
    entry_note(entry_current_thread(), NAME_cuDriverGetVersion);
    const CUresult answer = entry_apply_rules(NAME_cuDriverGetVersion);
    if (answer != CUDA_SUCCESS) return answer;
    if (version == NULL) return CUDA_ERROR_INVALID_VALUE;
    *version = (int)settings.driver_version;
    return CUDA_SUCCESS;
}
