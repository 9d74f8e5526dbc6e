/* SPDX-License-Identifier: MIT
 *
 * Binds each calling object to the runtime that the dynamic linker would have bound it to without us. The linker takes
 * the first definition in the global scope whose version is the one that the object needs, else one in the object's own
 * dependencies; our own definitions have no version and hide them all, so the search is made again from behind us.
 */
#include "entry/callers.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "entry/symbols.h"

static struct runtime *runtimes;                              /* by next; never freed; guarded by bind_lock */
static struct caller *callers;                                /* by next; as process_own.callers, never wiped */
static pthread_mutex_t bind_lock = PTHREAD_MUTEX_INITIALIZER; /* over `runtimes` and writing the callers */

/* ---- what an object needs and defines ---- */

static const ElfW(Dyn) * dynamic(const struct link_map *map, ElfW(Sxword) tag) {
    for (const ElfW(Dyn) *entry = map->l_ld; entry && entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == tag) return entry;
    return NULL;
}

/* Some systems relocate these pointers in place, some do not. */
static const void *dynamic_pointer(const struct link_map *map, ElfW(Sxword) tag) {
    const ElfW(Dyn) *entry = dynamic(map, tag);
    if (!entry) return NULL;
    const ElfW(Addr) pointer = entry->d_un.d_ptr;
    return (const void *)(pointer < map->l_addr ? map->l_addr + pointer : pointer);
}

/* The symbol version by which an object needs its CUDA runtime ("libcudart.so.13"), NULL when it names none. */
static const char *needed_version(const struct link_map *map) {
    const char *strings = dynamic_pointer(map, DT_STRTAB);
    const char *at = dynamic_pointer(map, DT_VERNEED);
    const ElfW(Dyn) *count = dynamic(map, DT_VERNEEDNUM);
    if (!strings || !at || !count) return NULL;
    for (ElfW(Xword) i = 0; i < count->d_un.d_val; i++) {
        const ElfW(Verneed) *need = (const void *)at;
        if (strncmp(strings + need->vn_file, "libcudart.so", 12) == 0) {
            const ElfW(Vernaux) *version = (const void *)(at + need->vn_aux);
            return strings + version->vna_name;
        }
        at += need->vn_next;
    }
    return NULL;
}

static const struct link_map *map_of(const void *address) {
    Dl_info info;
    struct link_map *map = NULL;
    return dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) ? map : NULL;
}

static bool defines_versions(const void *function) {
    const struct link_map *map = map_of(function);
    return map && dynamic(map, DT_VERDEF);
}

static bool is_ours(const void *function) {
    return symbols_object(function) == symbols_object((const void *)&callers);
}

/* ---- the search ---- */

static void *find_in(const char *library_name, const char *symbol, const char *version) {
    void *library = dlopen(library_name, RTLD_NOLOAD | RTLD_LAZY);
    if (!library) return NULL;
    void *found = version ? dlvsym(library, symbol, version) : symbols_dlsym()(library, symbol);
    dlclose(library);
    return found && !is_ours(found) ? found : NULL;
}

static void *find(const struct link_map *map, const char *version, const char *symbol) {
    void *next = symbols_dlsym()(RTLD_NEXT, symbol);
    /* Somebody else's interposer defines no versions: it stands between us and the runtime, as without us. */
    if (next && (!version || !defines_versions(next))) return next;
    void *exact = version ? dlvsym(RTLD_NEXT, symbol, version) : NULL;
    if (!exact && map && map->l_name[0]) exact = find_in(map->l_name, symbol, version);
    return exact ? exact : next;
}

struct named_library {
    char path[4096];
};

static int find_runtime_library(struct dl_phdr_info *info, size_t size, void *out) {
    struct named_library *library = out;
    (void)size;
    if (!info->dlpi_name || !strstr(info->dlpi_name, "libcudart.so") || strlen(info->dlpi_name) >= sizeof library->path)
        return 0;
    strcpy(library->path, info->dlpi_name);
    return 1;
}

/* A call that ends a function of another object returns into an object that knows no runtime. */
static void *find_anywhere(const char *symbol) {
    struct named_library library = {""};
    return dl_iterate_phdr(find_runtime_library, &library) ? find_in(library.path, symbol, NULL) : NULL;
}

void *callers_lookup(void *runtime, const char *symbol) {
    const struct link_map *map = map_of((const void *)((struct runtime *)runtime)->real.cudaMalloc);
    return map && map->l_name[0] ? find_in(map->l_name, symbol, NULL) : NULL;
}

/* ---- binding ---- */

struct extent {
    uintptr_t address, low, high;
    unsigned long long unloads;
};

static int find_extent(struct dl_phdr_info *info, size_t size, void *out) {
    struct extent *extent = out;
    (void)size;
    extent->unloads = info->dlpi_subs;
    uintptr_t low = UINTPTR_MAX, high = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD) continue;
        const uintptr_t start = info->dlpi_addr + part->p_vaddr;
        if (start < low) low = start;
        if (start + part->p_memsz > high) high = start + part->p_memsz;
    }
    if (extent->address < low || extent->address >= high) return 0;
    extent->low = low;
    extent->high = high;
    return 1;
}

static int read_unloads(struct dl_phdr_info *info, size_t size, void *out) {
    (void)size;
    *(unsigned long long *)out = info->dlpi_subs;
    return 1;
}

/* NULL when there is no runtime, or no host memory. Outside bind_lock, since the loader has locks of its own. */
static struct runtime *make_runtime(const void *address) {
    const struct link_map *map = map_of(address);
    const char *version = map ? needed_version(map) : NULL;
    struct runtime *runtime = calloc(1, sizeof *runtime);
    if (!runtime) return NULL;
#define CALLERS_FIND(symbol, arguments) runtime->real.symbol = (int(*) arguments)find(map, version, #symbol);
    CALLERS_FUNCTIONS(CALLERS_FIND)
#undef CALLERS_FIND
    if (!runtime->real.cudaMalloc && !runtime->real.cudaFree) {
#define CALLERS_FIND(symbol, arguments) runtime->real.symbol = (int(*) arguments)find_anywhere(#symbol);
        CALLERS_FUNCTIONS(CALLERS_FIND)
#undef CALLERS_FIND
    }
    if (!runtime->real.cudaMalloc || !runtime->real.cudaFree) {
        free(runtime);
        return NULL;
    }
    runtime->object = symbols_object((const void *)runtime->real.cudaMalloc);
    int (*get_version)(int *) = (int (*)(int *))callers_lookup(runtime, "cudaRuntimeGetVersion");
    if (get_version && get_version(&runtime->version) != 0) runtime->version = 0;
    return runtime;
}

/* With bind_lock: the runtime of the same functions that is known already, else this one. */
static struct runtime *enter_runtime(struct runtime *made) {
    for (struct runtime *known = runtimes; known; known = known->next) {
        if (memcmp(&known->real, &made->real, sizeof made->real) != 0 || known->object != made->object) continue;
        free(made);
        return known;
    }
    made->next = runtimes;
    runtimes = made;
    return made;
}

/* Objects have been unloaded since: is what is known of this caller still so? */
static bool still_true(const struct caller *caller, const void *address) {
    const struct runtime *runtime = caller->runtime;
    struct extent extent = {.address = (uintptr_t)address};
    return dl_iterate_phdr(find_extent, &extent) && extent.low == caller->low && extent.high == caller->high &&
           symbols_object((const void *)runtime->real.cudaMalloc) == runtime->object &&
           symbols_object((const void *)runtime->real.cudaFree);
}

static struct caller *caller_at(const void *address) {
    struct caller *caller = atomic_load_explicit(&process_own.callers, memory_order_acquire);
    while (caller && (uintptr_t)address - caller->low >= caller->high - caller->low) caller = caller->next;
    return caller;
}

static struct runtime *bind(const void *address, unsigned long long unloads) {
    struct runtime *runtime = make_runtime(address);
    if (!runtime) return NULL;
    struct extent extent = {.address = (uintptr_t)address};
    const bool in_object = dl_iterate_phdr(find_extent, &extent) != 0;
    struct caller *caller = in_object ? malloc(sizeof *caller) : NULL;
    pthread_mutex_lock(&bind_lock);
    runtime = enter_runtime(runtime);
    if (caller) {
        caller->low = extent.low;
        caller->high = extent.high;
        caller->runtime = runtime;
        atomic_init(&caller->unloads, unloads);
        /* In front of what was known of an object that is no more: the first one found counts. */
        caller->next = callers;
        __atomic_store_n(&callers, caller, __ATOMIC_RELEASE);
        atomic_store_explicit(&process_own.callers, caller, memory_order_release);
    }
    pthread_mutex_unlock(&bind_lock);
    return runtime;
}

struct runtime *callers_runtime(const void *address) {
    const int error = errno;
    process_notice();
    unsigned long long unloads = 0;
    dl_iterate_phdr(read_unloads, &unloads);
    struct caller *caller = caller_at(address);
    struct runtime *runtime;
    if (caller && atomic_load(&caller->unloads) != unloads && still_true(caller, address))
        atomic_store(&caller->unloads, unloads);
    if (caller && atomic_load(&caller->unloads) == unloads) {
        runtime = caller->runtime;
    } else {
        runtime = symbols_dlsym() ? bind(address, unloads) : NULL;
    }
    errno = error;
    return runtime;
}

void callers_after_fork(bool pooled) {
    bind_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    for (struct runtime *runtime = runtimes; runtime; runtime = runtime->next) {
        atomic_store(&runtime->decision, pooled ? RUNTIME_DECIDED : RUNTIME_UNDECIDED);
        atomic_store(&runtime->pool, NULL);
        runtime->runtime_only = false;
    }
    atomic_store_explicit(&process_own.callers, callers, memory_order_release);
}
