/* SPDX-License-Identifier: MIT
 *
 * Somebody else's hook of dlsym, preloaded: gives out its own cuMemAlloc, and says at the end how many allocations it
 * saw.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

void *dlsym(void *handle, const char *name);

typedef int alloc_function(unsigned long long *, size_t);
static alloc_function *real_alloc;
static int seen;

static int counted_alloc(unsigned long long *out, size_t bytes) {
    seen++;
    return real_alloc(out, bytes);
}

static void *find_dlsym(void) {
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    void *found = NULL;
    for (size_t i = 0; !found && i < sizeof versions / sizeof versions[0]; i++)
        found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    return found;
}

void *dlsym(void *handle, const char *name) {
    static void *(*next)(void *, const char *);
    if (!next) *(void **)&next = find_dlsym();
    void *found = next ? next(handle, name) : NULL;
    if (!found || handle == RTLD_DEFAULT || handle == RTLD_NEXT || strcmp(name, "cuMemAlloc_v2") != 0) return found;
    *(void **)&real_alloc = found;
    return (void *)counted_alloc;
}

static void __attribute__((destructor)) unloaded(void) {
    printf("the other hook saw: %d\n", seen);
    fflush(stdout);
}
