/* SPDX-License-Identifier: MIT
 *
 * Loads the plug-in named by the first argument RTLD_LOCAL. Linked with a runtime (OWN_RUNTIME), it makes the calls
 * itself too. `reload`: unloads the plug-in, loads it again and makes the calls once more.
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

int main(int argc, char **argv) {
    if (argc < 2) return 2;
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
