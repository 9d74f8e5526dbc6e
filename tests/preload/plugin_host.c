/* SPDX-License-Identifier: MIT
 *
 * Loads the plug-in named by the first argument RTLD_LOCAL. Linked with a runtime (OWN_RUNTIME), it makes the calls
 * itself too. `reload`: unloads the plug-in, loads it again and makes the calls once more. `calls`: lets it allocate
 * and free; `frees`: lets it free what the program has allocated.
 */
#include <dlfcn.h>
#include <string.h>

#include "sequence.h"

#ifdef OWN_RUNTIME
int cudaMalloc(void **out, size_t bytes);
int cudaFree(void *address);
#endif

static int load_and_run(const char *name, int unload) {
    void *plugin = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!plugin) return 100;
    int (*sequence)(void) = (int (*)(void))dlsym(plugin, "plugin_sequence");
    const int failed = sequence();
    if (unload) dlclose(plugin);
    return failed;
}

static int (*give_back)(void *);
static int (*take)(void **, size_t);

static int load(const char *name) {
    void *plugin = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!plugin) return 100;
    take = (int (*)(void **, size_t))dlsym(plugin, "plugin_take");
    give_back = (int (*)(void *))dlsym(plugin, "plugin_give_back");
    return 0;
}

static void say_calls(void) {
    void *p = NULL;
    for (int i = 0; i < 2; i++) {
        printf("plug-in allocates: %d\n", take(&p, 4096));
        printf("plug-in frees: %d\n", give_back(p));
    }
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    if (argc == 3 && strcmp(argv[2], "calls") == 0) {
        if (load(argv[1])) return 3;
        say_calls();
        wait_for_reader();
        return 0;
    }
#ifdef OWN_RUNTIME
    if (argc == 3 && strcmp(argv[2], "frees") == 0) {
        void *p, *q;
        printf("allocates: %d %d\n", cudaMalloc(&p, 4096), cudaMalloc(&q, 4096));
        if (load(argv[1])) return 3;
        printf("plug-in frees: %d\n", give_back(p));
        printf("once more: %d\n", give_back(p));
        printf("frees: %d\n", cudaFree(q));
        wait_for_reader();
        return 0;
    }
#endif
    const int reload = argc == 3 && strcmp(argv[2], "reload") == 0;
#ifdef OWN_RUNTIME
    printf("own sequence: %d\n", run_sequence(cudaMalloc, cudaFree));
#endif
    printf("plug-in's sequence: %d\n", load_and_run(argv[1], reload));
    if (reload) printf("once more: %d\n", load_and_run(argv[1], 1));
#ifdef OWN_RUNTIME
    printf("own sequence: %d\n", run_sequence(cudaMalloc, cudaFree));
#endif
    wait_for_reader();
    return 0;
}
