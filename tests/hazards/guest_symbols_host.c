/* SPDX-License-Identifier: MIT
 *
 * A program that loads plug-ins, and prints what calls answer. The first argument says what is done:
 *   waits PLUG-IN        CUDA is in use; then a plug-in's constructor waits for a thread that uses it too
 *   first PLUG-IN        the same where that thread is the first to use CUDA
 *   many PLUG-IN FOLDER  each library in the folder looks the driver's cuMemFree up; then the plug-in is loaded
 *   deep PLUG-IN         loaded RTLD_DEEPBIND, with a runtime of its own: each frees what the other allocated
 *   behind PLUG-IN       the same, where the plug-in frees the first block of a segment
 *   apart PLUG-IN        a plug-in with a runtime of another name than the program's
 */
#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sequence.h"

int cudaMalloc(void **out, size_t bytes);
int cudaFree(void *address);
int cudaGetLastError(void);

static int (*take)(void **, size_t);
static int (*give_back)(void *);
static int (*sequence)(void);
static int (*last_error)(void);

static int load(const char *name, int mode) {
    void *plugin = dlopen(name, RTLD_NOW | RTLD_LOCAL | mode);
    if (!plugin) {
        printf("%s\n", dlerror());
        return 3;
    }
    take = (int (*)(void **, size_t))dlsym(plugin, "plugin_take");
    give_back = (int (*)(void *))dlsym(plugin, "plugin_give_back");
    sequence = (int (*)(void))dlsym(plugin, "plugin_sequence");
    last_error = (int (*)(void))dlsym(plugin, "plugin_last_error");
    return 0;
}

static void say_waits(const char *name) {
    void *p;
    printf("program allocates: %d\n", cudaMalloc(&p, MIB));
    if (load(name, 0)) return;
    printf("program frees: %d\n", cudaFree(p));
}

static void say_first(const char *name) {
    load(name, 0);
}

static int look_up_in_all(const char *folder) {
    char path[4096];
    int loaded = 0;
    DIR *list = opendir(folder);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        int (*look_up)(void) = library ? (int (*)(void))dlsym(library, "look_up") : NULL;
        if (look_up && look_up()) loaded++;
    }
    if (list) closedir(list);
    return loaded;
}

static void say_many(const char *name, const char *folder) {
    void *p;
    printf("%d look-ups\n", look_up_in_all(folder));
    if (load(name, 0)) return;
    printf("sequence: %d\n", sequence());
    printf("plug-in allocates: %d\n", take(&p, MIB));
    printf("plug-in frees: %d\n", give_back(p));
    printf("once more: %d\n", give_back(p));
    printf("last error: %d\n", last_error());
    printf("and then: %d\n", last_error());
}

static void say_deep(const char *name) {
    void *first, *ours, *theirs, *again;
    printf("program allocates: %d\n", cudaMalloc(&first, MIB) | cudaMalloc(&ours, MIB));
    if (load(name, RTLD_DEEPBIND)) return;
    printf("plug-in allocates: %d\n", take(&theirs, MIB));
    printf("program frees the plug-in's: %d\n", cudaFree(theirs));
    printf("plug-in frees that: %d\n", give_back(theirs));
    /* No start of an allocation of the driver's. */
    printf("plug-in frees the program's: %d\n", give_back(ours));
    printf("program allocates: %d\n", cudaMalloc(&again, MIB));
    printf("other memory: %d\n", again != ours && again != first);
    printf("program frees: %d\n", cudaFree(ours) | cudaFree(first) | cudaFree(again));
}

static void say_behind(const char *name) {
    void *first;
    printf("program allocates: %d\n", cudaMalloc(&first, MIB));
    if (load(name, RTLD_DEEPBIND)) return;
    printf("plug-in frees the program's: %d\n", give_back(first));
    printf("program frees it: %d\n", cudaFree(first));
}

static void say_apart(const char *name) {
    void *p;
    printf("own sequence: %d\n", run_sequence(cudaMalloc, cudaFree));
    if (load(name, 0)) return;
    printf("plug-in's sequence: %d\n", sequence());
    printf("plug-in allocates: %d\n", take(&p, MIB));
    printf("program frees: %d\n", cudaFree(p));
    printf("once more: %d\n", cudaFree(p));
    printf("last errors: %d, of the plug-in's runtime %d\n", cudaGetLastError(), last_error());
    printf("program allocates: %d\n", cudaMalloc(&p, MIB));
    printf("plug-in frees: %d\n", give_back(p));
    printf("once more: %d\n", give_back(p));
    printf("last errors: %d, of the plug-in's runtime %d\n", cudaGetLastError(), last_error());
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    alarm(60); /* what waits for ever is ended */
    if (strcmp(argv[1], "waits") == 0) say_waits(argv[2]);
    if (strcmp(argv[1], "first") == 0) say_first(argv[2]);
    if (strcmp(argv[1], "many") == 0 && argc == 4) say_many(argv[2], argv[3]);
    if (strcmp(argv[1], "deep") == 0) say_deep(argv[2]);
    if (strcmp(argv[1], "behind") == 0) say_behind(argv[2]);
    if (strcmp(argv[1], "apart") == 0) say_apart(argv[2]);
    wait_for_reader();
    return 0;
}
