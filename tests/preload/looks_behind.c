/* SPDX-License-Identifier: MIT
 *
 * Preloaded behind the pool: says in which library the next cuMemAlloc_v2 behind itself lies.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void __attribute__((constructor)) look(void) {
    Dl_info info = {0};
    void *found = dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    const char *slash = found && dladdr(found, &info) ? strrchr(info.dli_fname, '/') : NULL;
    printf("behind: %s\n", slash ? slash + 1 : "nothing");
}
