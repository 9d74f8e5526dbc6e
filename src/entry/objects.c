/* SPDX-License-Identifier: MIT
 *
 * Reads the loaded objects' own tables, as the dynamic linker does when it binds a reference. dlsym, dladdr and dlopen
 * take the loader's lock, which is held while constructors run: one that waits for a thread which calls us would wait
 * for ever. dl_iterate_phdr takes another one, held only while objects are put into the list or taken out.
 */
#include "entry/objects.h"

#include <link.h>
#include <stddef.h>
#include <string.h>

#define NOWHERE SIZE_MAX
#define MOST_NEEDED 512 /* objects that one object needs, directly or not */

/* ---- the list: an object is known by its place in it, while the lock is held ---- */

struct visit {
    bool (*visit)(const struct dl_phdr_info *info, size_t index, void *arg); /* true: the walk ends */
    void *arg;
    size_t index;
};

static int visit_one(struct dl_phdr_info *info, size_t size, void *arg) {
    struct visit *visit = arg;
    (void)size;
    return visit->visit(info, visit->index++, visit->arg);
}

static bool visit_all(bool (*callback)(const struct dl_phdr_info *, size_t, void *), void *arg) {
    struct visit visit = {callback, arg, 0};
    return dl_iterate_phdr(visit_one, &visit) != 0;
}

/* Several walks that must see one list are made inside a walk: its lock may be taken again by its owner. */
struct locked {
    void *(*work)(const void *arg);
    const void *arg;
    void *result;
};

static int visit_locked(struct dl_phdr_info *info, size_t size, void *arg) {
    struct locked *locked = arg;
    (void)info, (void)size;
    locked->result = locked->work(locked->arg);
    return 1;
}

static void *with_lock(void *(*work)(const void *), const void *arg) {
    struct locked locked = {work, arg, NULL};
    dl_iterate_phdr(visit_locked, &locked);
    return locked.result;
}

static int read_count(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size;
    *(struct objects_count *)arg = (struct objects_count){info->dlpi_adds, info->dlpi_subs};
    return 1;
}

struct objects_count objects_count(void) {
    struct objects_count count = {0, 0};
    dl_iterate_phdr(read_count, &count);
    return count;
}

/* ---- where an object lies ---- */

static struct objects_extent extent_of(const struct dl_phdr_info *info) {
    struct objects_extent extent = {UINTPTR_MAX, 0};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD) continue;
        const uintptr_t start = info->dlpi_addr + part->p_vaddr;
        if (start < extent.low) extent.low = start;
        if (start + part->p_memsz > extent.high) extent.high = start + part->p_memsz;
    }
    return extent.low < extent.high ? extent : (struct objects_extent){0, 0};
}

struct holder {
    const void *address;
    struct dl_phdr_info info;
    struct objects_extent extent;
    size_t index;
};

static bool holds_address(const struct dl_phdr_info *info, size_t index, void *arg) {
    struct holder *holder = arg;
    const struct objects_extent extent = extent_of(info);
    if (!objects_within(&extent, holder->address)) return false;
    holder->info = *info;
    holder->extent = extent;
    holder->index = index;
    return true;
}

static struct holder holder_of(const void *address) {
    struct holder holder = {.address = address, .index = NOWHERE};
    visit_all(holds_address, &holder);
    return holder;
}

bool objects_extent(const void *address, struct objects_extent *out) {
    const struct holder holder = holder_of(address);
    *out = holder.extent;
    return holder.index != NOWHERE;
}

static size_t own_index(void) {
    static const char here;
    return holder_of(&here).index;
}

/* ---- an object's tables ---- */

struct tables {
    const ElfW(Dyn) * dynamic;
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *gnu_hash, *hash;
    const ElfW(Half) * versions;           /* of the symbols; NULL where they have none */
    const char *defined_versions, *needed; /* ElfW(Verdef), ElfW(Verneed) */
    const char *name;                      /* its own: soname */
    bool stays;
};

/* Some systems relocate these pointers in place, some do not. */
static const void *pointer_of(const struct dl_phdr_info *info, const ElfW(Dyn) * entry) {
    const ElfW(Addr) pointer = entry->d_un.d_ptr;
    return (const void *)(pointer < info->dlpi_addr ? info->dlpi_addr + pointer : pointer);
}

static bool read_tables(const struct dl_phdr_info *info, struct tables *tables) {
    const ElfW(Dyn) *name = NULL;
    *tables = (struct tables){0};
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            tables->dynamic = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    for (const ElfW(Dyn) *entry = tables->dynamic; entry && entry->d_tag != DT_NULL; entry++) {
        switch (entry->d_tag) {
        case DT_SYMTAB:
            tables->symbols = pointer_of(info, entry);
            break;
        case DT_STRTAB:
            tables->strings = pointer_of(info, entry);
            break;
        case DT_GNU_HASH:
            tables->gnu_hash = pointer_of(info, entry);
            break;
        case DT_HASH:
            tables->hash = pointer_of(info, entry);
            break;
        case DT_VERSYM:
            tables->versions = pointer_of(info, entry);
            break;
        case DT_VERDEF:
            tables->defined_versions = pointer_of(info, entry);
            break;
        case DT_VERNEED:
            tables->needed = pointer_of(info, entry);
            break;
        case DT_FLAGS_1:
            tables->stays = (entry->d_un.d_val & DF_1_NODELETE) != 0;
            break;
        case DT_SONAME:
            name = entry;
            break;
        default:
            break;
        }
    }
    if (!tables->strings || !tables->symbols) return false;
    if (name) tables->name = tables->strings + name->d_un.d_val;
    return true;
}

/* The version by which the object needs the library whose file name begins so; NULL when it names none. */
static const char *needed_version(const struct tables *tables, const char *library) {
    for (const char *at = tables->needed; at && tables->strings;) {
        const ElfW(Verneed) *need = (const void *)at;
        if (need->vn_cnt && strncmp(tables->strings + need->vn_file, library, strlen(library)) == 0) {
            const ElfW(Vernaux) *version = (const void *)(at + need->vn_aux);
            return tables->strings + version->vna_name;
        }
        at = need->vn_next ? at + need->vn_next : NULL;
    }
    return NULL;
}

static const char *defined_version(const struct tables *tables, unsigned int number) {
    for (const char *at = tables->defined_versions; at;) {
        const ElfW(Verdef) *definition = (const void *)at;
        if (definition->vd_ndx == number) {
            const ElfW(Verdaux) *name = (const void *)(at + definition->vd_aux);
            return tables->strings + name->vda_name;
        }
        at = definition->vd_next ? at + definition->vd_next : NULL;
    }
    return NULL;
}

/* ---- a definition ---- */

/* A reference with a version takes one without from an object that defines no versions at all: somebody else's
 * interposer. */
static bool defines(const struct tables *tables, uint32_t number, const char *symbol, const char *version) {
    const ElfW(Sym) *entry = &tables->symbols[number];
    const unsigned int type = ELF64_ST_TYPE(entry->st_info); /* the same in both classes */
    if (entry->st_shndx == SHN_UNDEF || !entry->st_value || (type != STT_FUNC && type != STT_NOTYPE) ||
        ELF64_ST_BIND(entry->st_info) == STB_LOCAL || strcmp(tables->strings + entry->st_name, symbol) != 0)
        return false;
    if (!tables->versions || !tables->defined_versions) return true;
    const unsigned int of_symbol = tables->versions[number];
    if (!version) return (of_symbol & 0x8000) == 0; /* set: not the default */
    const char *defined = defined_version(tables, of_symbol & 0x7fff);
    return defined && strcmp(defined, version) == 0;
}

static uint32_t find_by_gnu_hash(const struct tables *tables, const char *symbol, const char *version) {
    const uint32_t *table = tables->gnu_hash;
    const uint32_t count = table[0], first = table[1], filter_words = table[2];
    const uint32_t *buckets = (const uint32_t *)((const ElfW(Addr) *)(table + 4) + filter_words);
    const uint32_t *hashes = buckets + count;
    uint32_t hash = 5381;
    for (const char *at = symbol; *at; at++) hash = hash * 33 + (unsigned char)*at;
    uint32_t number = count ? buckets[hash % count] : 0;
    if (number < first) return 0;
    for (;; number++) {
        const uint32_t here = hashes[number - first]; /* its last bit: the bucket ends */
        if ((here | 1) == (hash | 1) && defines(tables, number, symbol, version)) return number;
        if (here & 1) return 0;
    }
}

static uint32_t find_by_hash(const struct tables *tables, const char *symbol, const char *version) {
    const uint32_t count = tables->hash[0];
    const uint32_t *buckets = tables->hash + 2, *next = buckets + count;
    uint32_t hash = 0;
    for (const char *at = symbol; *at; at++) {
        hash = (hash << 4) + (unsigned char)*at;
        const uint32_t high = hash & 0xf0000000;
        hash = (hash ^ high >> 24) & ~high;
    }
    for (uint32_t number = count ? buckets[hash % count] : 0; number; number = next[number])
        if (defines(tables, number, symbol, version)) return number;
    return 0;
}

static void *find_in(const struct dl_phdr_info *info, const char *symbol, const char *version) {
    struct tables tables;
    if (!read_tables(info, &tables)) return NULL;
    const uint32_t number = tables.gnu_hash ? find_by_gnu_hash(&tables, symbol, version)
                            : tables.hash   ? find_by_hash(&tables, symbol, version)
                                            : 0;
    return number ? (void *)(info->dlpi_addr + tables.symbols[number].st_value) : NULL;
}

/* ---- names ---- */

static const char *path_of(const struct dl_phdr_info *info) {
    return info->dlpi_name ? info->dlpi_name : "";
}

static const char *file_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

struct named {
    const char *name;
    size_t index;
    uintptr_t start;
};

static bool goes_by(const struct dl_phdr_info *info, size_t index, void *arg) {
    struct named *named = arg;
    struct tables tables;
    const char *path = path_of(info);
    if (strcmp(path, named->name) != 0 && strcmp(file_of(path), named->name) != 0 &&
        (!read_tables(info, &tables) || !tables.name || strcmp(tables.name, named->name) != 0))
        return false;
    named->index = index;
    named->start = extent_of(info).low;
    return true;
}

static size_t index_of(const char *name) {
    struct named named = {name, NOWHERE, 0};
    visit_all(goes_by, &named);
    return named.index;
}

uintptr_t objects_named(const char *name) {
    struct named named = {name, NOWHERE, 0};
    visit_all(goes_by, &named);
    return named.start;
}

/* ---- what was loaded with the program ---- */

struct at_index {
    size_t index;
    struct dl_phdr_info info;
};

static bool is_at(const struct dl_phdr_info *info, size_t index, void *arg) {
    struct at_index *at = arg;
    if (index != at->index) return false;
    at->info = *info;
    return true;
}

/* Calls back with the place of each object that the one at this place needs. */
static void needs_of(size_t index, void (*needed)(size_t index, void *arg), void *arg) {
    struct at_index at = {.index = index};
    struct tables tables;
    if (!visit_all(is_at, &at) || !read_tables(&at.info, &tables)) return;
    for (const ElfW(Dyn) *entry = tables.dynamic; entry->d_tag != DT_NULL; entry++) {
        const size_t found = entry->d_tag == DT_NEEDED ? index_of(tables.strings + entry->d_un.d_val) : NOWHERE;
        if (found != NOWHERE) needed(found, arg);
    }
}

static void raise_to(size_t index, void *arg) {
    size_t *last = arg;
    if (index > *last) *last = index;
}

/* These stand at the head of the list, for good: the program, what is preloaded, and what these need. */
static size_t last_at_start(void) {
    static size_t known;
    size_t last = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (last) return last;
    last = own_index();
    for (size_t i = 0; i <= last; i++) needs_of(i, raise_to, &last);
    __atomic_store_n(&known, last, __ATOMIC_RELAXED);
    return last;
}

/* ---- the searches ---- */

struct search {
    const char *symbol, *version, *library;
    size_t first, last; /* places in the list */
    size_t own;
    void *found;
};

static bool search_one(const struct dl_phdr_info *info, size_t index, void *arg) {
    struct search *search = arg;
    if (index < search->first || index > search->last || index == search->own) return false;
    if (search->library && strncmp(file_of(path_of(info)), search->library, strlen(search->library)) != 0) return false;
    search->found = find_in(info, search->symbol, search->version);
    return search->found != NULL;
}

static void *search(size_t first, size_t last, const char *library, const char *symbol, const char *version) {
    struct search search = {symbol, version, library, first, last, own_index(), NULL};
    visit_all(search_one, &search);
    return search.found;
}

static void *search_start(const char *symbol, const char *version) {
    return search(own_index() + 1, last_at_start(), NULL, symbol, version);
}

struct queue {
    size_t count;
    uint16_t at[MOST_NEEDED];
};

static void enqueue(size_t index, void *arg) {
    struct queue *queue = arg;
    for (size_t i = 0; i < queue->count; i++)
        if (queue->at[i] == index) return;
    if (queue->count < MOST_NEEDED && index <= UINT16_MAX) queue->at[queue->count++] = (uint16_t)index;
}

/* In the object and what it needs, the nearest first, from this place in the list on. */
static void *search_needed(size_t index, size_t first, const char *symbol, const char *version) {
    struct queue queue = {.count = 0};
    if (index != NOWHERE) enqueue(index, &queue);
    for (size_t i = 0; i < queue.count; i++) {
        void *found = queue.at[i] < first ? NULL : search(queue.at[i], queue.at[i], NULL, symbol, version);
        if (found) return found;
        needs_of(queue.at[i], enqueue, &queue);
    }
    return NULL;
}

struct reference {
    const void *caller;
    const char *symbol, *library;
};

static const char *version_needed_by(const struct holder *caller, const char *library) {
    struct tables tables;
    return caller->index != NOWHERE && read_tables(&caller->info, &tables) ? needed_version(&tables, library) : NULL;
}

/* What lies before us calls us for what lies behind. */
static void *bind(const void *arg) {
    const struct reference *reference = arg;
    const struct holder caller = holder_of(reference->caller);
    const char *version = version_needed_by(&caller, reference->library);
    void *found = search_start(reference->symbol, version);
    return found ? found : search_needed(caller.index, own_index(), reference->symbol, version);
}

void *objects_bind(const void *caller, const char *symbol, const char *library) {
    const struct reference reference = {caller, symbol, library};
    return with_lock(bind, &reference);
}

static void *bind_loosely(const void *arg) {
    const struct reference *reference = arg;
    const struct holder caller = holder_of(reference->caller);
    const char *version = version_needed_by(&caller, reference->library);
    void *found = search(own_index(), NOWHERE, reference->library, reference->symbol, version);
    if (!found) found = search_start(reference->symbol, NULL);
    return found ? found : search(own_index(), NOWHERE, NULL, reference->symbol, NULL);
}

void *objects_bind_loosely(const void *caller, const char *symbol, const char *library) {
    const struct reference reference = {caller, symbol, library};
    return with_lock(bind_loosely, &reference);
}

static void *next(const void *symbol) {
    return search_start(symbol, NULL);
}

void *objects_next(const char *symbol) {
    return with_lock(next, symbol);
}

static void *symbol_of(const void *arg) {
    const struct reference *reference = arg;
    return search_needed(holder_of(reference->caller).index, 0, reference->symbol, NULL);
}

void *objects_symbol(const void *address, const char *symbol) {
    const struct reference reference = {address, symbol, NULL};
    return with_lock(symbol_of, &reference);
}

static void *stays(const void *address) {
    const struct holder holder = holder_of(address);
    struct tables tables;
    if (holder.index == NOWHERE) return NULL;
    const bool yes = holder.index <= last_at_start() || (read_tables(&holder.info, &tables) && tables.stays);
    return yes ? (void *)holder.extent.low : NULL;
}

bool objects_stays(const void *address) {
    return with_lock(stays, address) != NULL;
}
