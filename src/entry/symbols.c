/* SPDX-License-Identifier: MIT
 *
 * Finds libc's dlsym and the driver's functions, and tells by address which of them are hooked. The driver is
 * the library that goes by the name libcuda.so.1 in this process; once found it is kept loaded, since its functions are
 * called from here on.
 */
#include "entry/symbols.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "config/log.h"
#include "entry/objects.h"
#include "entry/process.h"
#include "stats/writer.h"

#define DRIVER_LIBRARY "libcuda.so.1"

entry_dlsym_function *entry_real_dlsym;
union entry_real entry_real;
_Atomic bool entry_driver_found;

_Static_assert(sizeof entry_real == sizeof entry_real.at, "one pointer a hook");

static const struct hook {
    const char *symbol, *name;
    int version, flags;
    void *function;
} hooks[ENTRY_HOOK_COUNT] = {
#define HOOK_ROW(symbol, name, version, flags, arguments) {#symbol, name, version, flags, (void *)entry_##symbol},
    ENTRY_HOOKS(HOOK_ROW)
#undef HOOK_ROW
};

/* ---- libc's dlsym ---- */

/* Its versions, the newest first: since it is in libc, and those of AArch64 and x86-64 before. */
static const char *const dlsym_versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5", NULL};

/* A sanitizer's runtime looks its functions up through us before its memory is laid out and before it can answer for
 * the string functions: what lies on that way is plain code of our own. */
#define ENTRY_BEFORE_SANITIZER __attribute__((no_sanitize_address, no_sanitize_thread))

static bool ENTRY_BEFORE_SANITIZER begins_with(const char *text, const char *start) {
    while (*start)
        if (*text++ != *start++) return false;
    return true;
}

/* Anybody may export a dlsym: it must be libc's. */
static bool ENTRY_BEFORE_SANITIZER in_libc(const void *function) {
    static const char *const files[] = {"libc.so", "libc-", "libdl.so", "libdl-"};
    Dl_info info;
    if (!function || !dladdr(function, &info) || !info.dli_fname) return false;
    const char *file = info.dli_fname;
    for (const char *at = file; *at; at++)
        if (*at == '/') file = at + 1;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (begins_with(file, files[i])) return true;
    return false;
}

static void *ENTRY_BEFORE_SANITIZER find_dlsym(void *handle) {
    for (size_t i = 0; dlsym_versions[i]; i++) {
        void *function = dlvsym(handle, "dlsym", dlsym_versions[i]);
        if (in_libc(function)) return function;
    }
    return NULL;
}

entry_dlsym_function *ENTRY_BEFORE_SANITIZER symbols_dlsym(void) {
    entry_dlsym_function *known = __atomic_load_n(&entry_real_dlsym, __ATOMIC_RELAXED);
    if (known) return known;
    static const char *const libraries[] = {"libc.so.6", "libdl.so.2"};
    void *found = find_dlsym(RTLD_NEXT);
    for (size_t i = 0; !found && i < sizeof libraries / sizeof libraries[0]; i++) {
        void *library = dlopen(libraries[i], RTLD_NOLOAD | RTLD_LAZY);
        if (library) found = find_dlsym(library);
    }
    __atomic_store_n(&entry_real_dlsym, (entry_dlsym_function *)found, __ATOMIC_RELAXED);
    return (entry_dlsym_function *)found;
}

/* ---- the driver ---- */

static pthread_mutex_t find_lock = PTHREAD_MUTEX_INITIALIZER;
static struct objects_extent driver;          /* written before entry_driver_found */
static const void *alias[ENTRY_HOOK_COUNT];   /* what cuGetProcAddress gives where it is another address than dlsym's */
static bool shared_address[ENTRY_HOOK_COUNT]; /* two names at one address: hooked by neither */

void *symbols_driver_lookup(const char *symbol) {
    return objects_symbol((const void *)driver.low, symbol);
}

static bool locate_driver(struct objects_extent *out) {
    const uintptr_t named = objects_named(DRIVER_LIBRARY);
    /* Else a program may be linked with a driver of another name. */
    const void *address = named ? (const void *)named : objects_next("cuMemAlloc_v2");
    if (!address || !objects_extent(address, out)) return false;
    /* Everybody else may close it. */
    return objects_stays(address) || dlopen(DRIVER_LIBRARY, RTLD_NOLOAD | RTLD_LAZY);
}

static void mark_shared_addresses(void) {
    for (int i = 0; i < ENTRY_HOOK_COUNT; i++) {
        for (int k = 0; k < i; k++) {
            if (!entry_real.at[i] || entry_real.at[i] != entry_real.at[k]) continue;
            shared_address[i] = shared_address[k] = true;
            stats_event(&(struct poolcuda_event){.type = POOLCUDA_EVENT_fallback, .device = -1});
            log_line(LOG_WARNING, "%s and %s are one function of the driver: neither is hooked", hooks[k].symbol,
                     hooks[i].symbol);
        }
    }
}

static int hook_at(const void *address) {
    for (int i = 0; i < ENTRY_HOOK_COUNT; i++)
        if (address && (entry_real.at[i] == address || alias[i] == address)) return i;
    return -1;
}

/* A driver may give by cuGetProcAddress another address of the same function than by dlsym. */
static void learn_aliases(void) {
    for (int i = 0; i < ENTRY_HOOK_COUNT; i++) {
        if (!entry_real.at[i]) continue;
        const cuuint64_t flags = (cuuint64_t)hooks[i].flags;
        void *address = NULL;
        CUresult result = CUDA_ERROR_NOT_FOUND;
        if (REAL(cuGetProcAddress_v2)) {
            result = REAL(cuGetProcAddress_v2)(hooks[i].name, &address, hooks[i].version, flags, NULL);
        } else if (REAL(cuGetProcAddress)) {
            result = REAL(cuGetProcAddress)(hooks[i].name, &address, hooks[i].version, flags);
        }
        if (result == CUDA_SUCCESS && address && hook_at(address) < 0) alias[i] = address;
    }
}

bool symbols_find_driver(void) {
    static _Atomic unsigned long long in_vain; /* objects that had been loaded when it was not among them */
    const int error = errno;
    process_notice();
    struct objects_extent found;
    const unsigned long long loads = objects_count().loads;
    if (atomic_load(&in_vain) == loads || !locate_driver(&found)) {
        atomic_store(&in_vain, loads);
        errno = error;
        return false;
    }
    pthread_mutex_lock(&find_lock);
    if (!atomic_load_explicit(&entry_driver_found, memory_order_relaxed)) {
        driver = found;
        for (int i = 0; i < ENTRY_HOOK_COUNT; i++) entry_real.at[i] = symbols_driver_lookup(hooks[i].symbol);
        mark_shared_addresses();
        learn_aliases();
        atomic_store_explicit(&entry_driver_found, true, memory_order_release);
    }
    pthread_mutex_unlock(&find_lock);
    errno = error;
    return true;
}

void symbols_after_fork(void) {
    find_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

bool symbols_hooks_usable(void) {
    static const enum entry_hook ways[] = {ENTRY_HOOK_cuMemAlloc_v2, ENTRY_HOOK_cuMemFree_v2, ENTRY_HOOK_cuMemFreeAsync,
                                           ENTRY_HOOK_cuMemFreeAsync_ptsz};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        if (shared_address[ways[i]]) return false;
    return REAL(cuMemAlloc_v2) && REAL(cuMemFree_v2);
}

/* ---- who was given the hook of cuMemFree ---- */

/* Starts of objects, the first unused one zero. Never on the heap: an allocator may be what looks symbols up. */
struct hooked_objects {
    _Atomic uintptr_t start[511];
    _Atomic(struct hooked_objects *) next;
};
static struct hooked_objects hooked_objects;

static struct hooked_objects *more_after(struct hooked_objects *last) {
    struct hooked_objects *none = NULL;
    struct hooked_objects *more = mmap(NULL, sizeof *more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (more == MAP_FAILED) return NULL;
    if (atomic_compare_exchange_strong(&last->next, &none, more)) return more;
    munmap(more, sizeof *more);
    return none;
}

static void note_object(const void *caller) {
    struct objects_extent extent;
    if (!objects_extent(caller, &extent)) return;
    struct hooked_objects *some = &hooked_objects;
    while (some) {
        for (size_t i = 0; i < sizeof some->start / sizeof some->start[0]; i++) {
            uintptr_t start = 0;
            if (atomic_compare_exchange_strong(&some->start[i], &start, extent.low) || start == extent.low) return;
        }
        struct hooked_objects *next = atomic_load(&some->next);
        some = next ? next : more_after(some);
    }
}

bool symbols_object_hooked(uintptr_t wanted) {
    for (struct hooked_objects *some = &hooked_objects; some; some = atomic_load(&some->next)) {
        for (size_t i = 0; i < sizeof some->start / sizeof some->start[0]; i++) {
            const uintptr_t start = atomic_load(&some->start[i]);
            if (!start) return false;
            if (start == wanted) return true;
        }
    }
    return false;
}

void *symbols_hook(const void *address, const void *caller) {
    const int i = hook_at(address);
    if (i < 0 || shared_address[i] || process_bypassed()) return NULL;
    /* The driver's own look-ups of itself are its own affair: our hook would call it back for ever. */
    if (objects_within(&driver, caller)) return NULL;
    if (i == ENTRY_HOOK_cuMemFree_v2) note_object(caller);
    __atomic_fetch_add(&stats_header()->symbols_hooked, 1, __ATOMIC_RELAXED);
    return hooks[i].function;
}

/* ---- dlsym ---- */

static bool hooked_name(const char *name) {
    if (name[0] != 'c' || name[1] != 'u') return false;
    for (int i = 0; i < ENTRY_HOOK_COUNT; i++)
        if (strcmp(name, hooks[i].symbol) == 0) return true;
    return false;
}

void *ENTRY_BEFORE_SANITIZER hook_pick(void *handle, const char *name, const void *caller) {
    entry_dlsym_function *real = symbols_dlsym();
    if (!real || handle == RTLD_DEFAULT || handle == RTLD_NEXT || !name || !hooked_name(name)) return NULL;
    process_notice();
    if (!symbols_driver()) return NULL;
    const int error = errno;
    void *address = real(handle, name);
    void *hook = address ? symbols_hook(address, caller) : NULL;
    errno = error;
    return hook;
}

/* ---- cuGetProcAddress ---- */

static CUresult swap(CUresult result, void **out, const void *caller) {
    __atomic_fetch_add(&stats_header()->proc_address_lookups, 1, __ATOMIC_RELAXED);
    if (result == CUDA_SUCCESS && out && *out) {
        const int error = errno;
        void *hook = symbols_hook(*out, caller);
        if (hook) *out = hook;
        errno = error;
    }
    return result;
}

CUresult entry_cuGetProcAddress(const char *name, void **out, int version, cuuint64_t flags) {
    if (!symbols_driver() || !REAL(cuGetProcAddress)) return PROCESS_NO_DRIVER;
    process_first_call();
    return swap(REAL(cuGetProcAddress)(name, out, version, flags), out, __builtin_return_address(0));
}

CUresult entry_cuGetProcAddress_v2(const char *name, void **out, int version, cuuint64_t flags, void *status) {
    if (!symbols_driver() || !REAL(cuGetProcAddress_v2)) return PROCESS_NO_DRIVER;
    process_first_call();
    return swap(REAL(cuGetProcAddress_v2)(name, out, version, flags, status), out, __builtin_return_address(0));
}
