/* SPDX-License-Identifier: MIT
 *
 * Looks symbols up in every way and prints what it got: by name of symbol and, where `objects` is asked for, whether it
 * lies in the pool's library. The first argument says which look-ups.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

typedef CUresult get_v1(const char *, void **, int, cuuint64_t);
typedef CUresult get_v2(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static void *library;

static const char *symbol_of(const void *address) {
    Dl_info info;
    return !address ? "nothing" : dladdr(address, &info) && info.dli_sname ? info.dli_sname : "unnamed";
}

static const char *object_of(const void *address) {
    Dl_info info;
    if (!address || !dladdr(address, &info)) return "none";
    const char *slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}

static void open_driver(void) {
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) exit(3);
}

/* ---- every version and flag of each name on stdin ---- */

static void say_versions(void) {
    static const int versions[] = {2000,  3010,  3020,  4000,  5000,  7000,  8000,  10000, 10010,
                                   11000, 11030, 11040, 12000, 12030, 12050, 12080, 13000};
    char name[128];
    open_driver();
    get_v1 *v1 = (get_v1 *)dlsym(library, "cuGetProcAddress");
    get_v2 *v2 = (get_v2 *)dlsym(library, "cuGetProcAddress_v2");
    while (scanf("%127s", name) == 1) {
        void *found = dlsym(library, name);
        printf("%s: %s %s\n", name, symbol_of(found), object_of(found));
        for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
            for (cuuint64_t flags = 0; flags < 3; flags++) {
                CUdriverProcAddressQueryResult status = 9;
                void *old = NULL;
                found = NULL;
                const int code = v2 ? (int)v2(name, &found, versions[i], flags, &status) : 0;
                const int code_v1 = v1 ? (int)v1(name, &old, versions[i], flags) : 0;
                printf("%s %d %d: %d %d %d %s %s %s\n", name, versions[i], (int)flags, code, (int)status, code_v1,
                       symbol_of(found), v1 ? symbol_of(old) : "", object_of(v2 ? found : old));
            }
        }
    }
}

/* ---- odd questions ---- */

static void say_odd_v2(get_v1 *v1, get_v2 *v2) {
    CUdriverProcAddressQueryResult status = 9;
    void *found = &status;
    int code = (int)v2("", &found, 0, 0, &status);
    printf("\"\": %d %d %s\n", code, (int)status, symbol_of(found));
    code = (int)v2("", &found, 0, 0, NULL);
    printf("\"\" without status: %d\n", code);
    printf("without status: %d\n", (int)v2("cuMemAlloc", &found, 12000, 0, NULL));
    printf("is %s\n", symbol_of(found));
    printf("NULL name: %d\n", (int)v2(NULL, &found, 12000, 0, &status));
    printf("NULL pointer: %d\n", (int)v2("cuMemAlloc", NULL, 12000, 0, &status));
    printf("NULL pointer and status: %d\n", (int)v2("cuMemAlloc", NULL, 12000, 0, NULL));
    printf("bad flags: %d\n", (int)v2("cuMemAlloc", &found, 12000, 99, &status));
    printf("newer than the driver: %d\n", (int)v2("cuMemAlloc", &found, 99990, 0, &status));
    code = (int)v2("cuGetProcAddress", &found, 12000, 0, &status);
    printf("itself: %d, the same %d\n", code, found == (void *)v2);
    code = (int)v2("cuGetProcAddress", &found, 11030, 0, &status);
    printf("its old self: %d, the same %d\n", code, found == (void *)v1);
}

static void say_odd_v1(get_v1 *v1, get_v2 *v2) {
    void *found = &found;
    int code = (int)v1("", &found, 0, 0);
    printf("v1 \"\": %d %s\n", code, symbol_of(found));
    printf("v1 NULL name: %d\n", (int)v1(NULL, &found, 12000, 0));
    printf("v1 NULL pointer: %d\n", (int)v1("cuMemAlloc", NULL, 12000, 0));
    printf("v1 bad flags: %d\n", (int)v1("cuMemAlloc", &found, 12000, 99));
    printf("v1 newer than the driver: %d\n", (int)v1("cuMemAlloc", &found, 99990, 0));
    code = (int)v1("cuGetProcAddress", &found, 11030, 0);
    printf("v1 itself: %d, the same %d\n", code, found == (void *)v1);
    code = (int)v1("cuGetProcAddress", &found, 12000, 0);
    printf("v1 its new self: %d, the same %d\n", code, found == (void *)v2);
}

/* Before cuInit, and after. */
static void say_odd(void) {
    open_driver();
    get_v1 *v1 = (get_v1 *)dlsym(library, "cuGetProcAddress");
    get_v2 *v2 = (get_v2 *)dlsym(library, "cuGetProcAddress_v2");
    CUresult (*init)(unsigned int) = (CUresult(*)(unsigned int))dlsym(library, "cuInit");
    for (int i = 0; i < 2; i++) {
        say_odd_v2(v1, v2);
        say_odd_v1(v1, v2);
        printf("cuInit: %d\n", (int)init(0));
    }
    printf("by default: %s\n", symbol_of(dlsym(RTLD_DEFAULT, "dlsym")));
}

/* ---- dlerror ---- */

static void say_error(const char *when) {
    const char *text = dlerror();
    printf("%s: %s\n", when, text ? text : "no error");
}

static void say_errors(void) {
    open_driver();
    say_error("at first");
    dlsym(library, "cuNoSuchFunction");
    say_error("a missing name");
    say_error("once more");
    dlsym(library, "cuMemAlloc_v2");
    say_error("a found name");
    dlsym(library, "cuNoSuchFunction");
    dlsym(library, "cuMemFree_v2");
    say_error("missing, then found");
    dlsym(RTLD_DEFAULT, "no_such_function");
    say_error("missing by default");
    dlsym(RTLD_NEXT, "no_such_function");
    say_error("missing behind");
    void *other = dlopen("libother_names.so", RTLD_NOW);
    dlsym(other, "cuMemAlloc_v2");
    say_error("missing in another library");
    dlopen("libno-such-library.so", RTLD_NOW);
    say_error("a missing library");
}

/* ---- names that only look like ours ---- */

static const char *const other_names[] = {"cudnnCreate", "cublasCreate_v2", "curl_easy_init", "cudaMalloc",
                                          "cuMemAlloc",  "cuda_something",  "cuMemAlloc_v2",  "cuMemFreeAsync_ptsz"};

static void say_other_name(const char *how, const char *name, void *found) {
    int (*function)(void) = (int (*)(void))found;
    printf("%s %s: %s in %s says %d\n", how, name, symbol_of(found), object_of(found), found ? function() : -1);
}

static void say_other_names(void) {
    void *other = dlopen("libother_names.so", RTLD_NOW);
    if (!other) exit(3);
    open_driver();
    get_v2 *v2 = (get_v2 *)dlsym(library, "cuGetProcAddress_v2");
    const size_t count = sizeof other_names / sizeof other_names[0];
    for (size_t i = 0; i < count; i++) say_other_name("by handle", other_names[i], dlsym(other, other_names[i]));
    /* The others are names of the pool's own exports. */
    for (size_t i = 0; i < 3; i++) {
        void *found = NULL;
        say_other_name("by default", other_names[i], dlsym(RTLD_DEFAULT, other_names[i]));
        printf("by the driver %s: %d %s\n", other_names[i], (int)v2(other_names[i], &found, 12000, 0, NULL),
               symbol_of(found));
    }
    dlopen("libother_names.so", RTLD_NOW | RTLD_GLOBAL);
    for (size_t i = 0; i < 3; i++) {
        say_other_name("by default", other_names[i], dlsym(RTLD_DEFAULT, other_names[i]));
        say_other_name("behind", other_names[i], dlsym(RTLD_NEXT, other_names[i]));
    }
}

/* ---- many at once ---- */

static pthread_barrier_t barrier;

static void *look_up_often(void *argument) {
    static const char *const names[] = {"cuMemAlloc_v2", "cuMemFree_v2", "cuInit", "cuNoSuchFunction"};
    void *first[4] = {0}, *const behind = dlsym(RTLD_NEXT, "malloc"), *const chained = dlsym(RTLD_NEXT, "chain");
    long *different = argument;
    pthread_barrier_wait(&barrier);
    void *mine = dlopen("libcuda.so.1", RTLD_NOW);
    for (int i = 0; i < 1000; i++) {
        void *found = dlsym(mine, names[i % 4]);
        if (i < 4) first[i] = found;
        if (found != first[i % 4] || (found == NULL) != (i % 4 == 3)) ++*different;
        if (!behind || !chained || dlsym(RTLD_NEXT, "malloc") != behind || dlsym(RTLD_NEXT, "chain") != chained ||
            dlsym(RTLD_DEFAULT, "chain") == chained)
            ++*different;
    }
    return NULL;
}

static void say_threads(void) {
    pthread_t threads[8];
    long different[8] = {0};
    pthread_barrier_init(&barrier, NULL, 8);
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, look_up_often, &different[i]);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 8; i++) printf("thread %d: %ld different\n", i, different[i]);
}

/* ---- who asks: a chain of libraries, and one loaded with its own scope ---- */

int chain_first(void);
int chain_second(void);
const char *chain(void);
__attribute__((weak)) const char *chain(void) {
    const char *(*next)(void) = (const char *(*)(void))dlsym(RTLD_NEXT, "chain");
    static char text[64];
    snprintf(text, sizeof text, "program %s", next ? next() : "(end)");
    return text;
}

static void say_scopes(void) {
    printf("%d links: %s\n", chain_first() + chain_second(), chain());
    void *local = dlopen("liblocal_scope.so", RTLD_NOW | RTLD_LOCAL);
    if (!local) exit(3);
    const char *(*tell)(void) = (const char *(*)(void))dlsym(local, "local_tells");
    printf("%s\n", tell());
    printf("not from here: %s\n", symbol_of(dlsym(RTLD_DEFAULT, "local_secret")));
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*say)(void);
    } parts[] = {{"versions", say_versions}, {"odd", say_odd},         {"errors", say_errors},
                 {"names", say_other_names}, {"threads", say_threads}, {"scopes", say_scopes}};
    for (size_t i = 0; argc == 2 && i < sizeof parts / sizeof parts[0]; i++) {
        if (strcmp(argv[1], parts[i].name) != 0) continue;
        parts[i].say();
        return 0;
    }
    return 2;
}
