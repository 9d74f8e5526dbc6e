/* SPDX-License-Identifier: MIT
 *
 * What the simulated driver offers; see simulated.h.
 */
#include "simulated.h"

#include <dlfcn.h>
#include <stddef.h>

const struct simulated *simulated_driver(void) {
    static struct simulated found;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver == NULL) return NULL;
    found.launch = (int (*)(const struct sim_kernel *, void *))dlsym(driver, "sim_launch");
    found.calls = (uint64_t(*)(const char *))dlsym(driver, "sim_calls");
    dlclose(driver); /* the process has it loaded */
    return found.launch != NULL && found.calls != NULL ? &found : NULL;
}
