/* SPDX-License-Identifier: MIT
 *
 * An allocator whose functions call dlsym, also while dlsym itself allocates. It says so where a look-up that finds its
 * name allocates: that of an allocator which does not expect it would never end.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

void *malloc(size_t bytes);
void free(void *p);
void *calloc(size_t n, size_t bytes);

static void *(*real_malloc)(size_t);
static void (*real_free)(void *);
static __thread int inside, finding, looked_up;
static char early[1 << 20];
static size_t early_used;

static int is_early(const void *p) {
    return (const char *)p >= early && (const char *)p < early + sizeof early;
}

static void *take_early(size_t bytes) {
    const size_t at = __atomic_fetch_add(&early_used, (bytes + 15) / 16 * 16, __ATOMIC_RELAXED);
    return at + bytes <= sizeof early ? early + at : NULL;
}

static void look_up(void) {
    inside++;
    if (!real_malloc) *(void **)&real_malloc = dlsym(RTLD_NEXT, "malloc");
    if (!real_free) *(void **)&real_free = dlsym(RTLD_NEXT, "free");
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (library) {
        finding = ++looked_up > 1; /* the first one of a thread also makes the driver's own state of it */
        dlsym(library, "cuMemAlloc_v2");
        finding = 0;
        dlclose(library);
    }
    inside--;
}

void *malloc(size_t bytes) {
    if (finding) finding = write(1, "a look-up allocates\n", 20) < 0;
    if (inside) return real_malloc ? real_malloc(bytes) : take_early(bytes);
    look_up();
    return real_malloc(bytes);
}

void free(void *p) {
    if (!p || is_early(p)) return;
    if (!real_free) look_up();
    real_free(p);
}

void *calloc(size_t n, size_t bytes) {
    void *p = malloc(n * bytes);
    return p ? memset(p, 0, n * bytes) : NULL;
}
