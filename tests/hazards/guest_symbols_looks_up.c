/* SPDX-License-Identifier: MIT
 *
 * One of many libraries that look a function of the driver up.
 */
#include <dlfcn.h>
#include <stddef.h>

int look_up(void);

int look_up(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    return driver && dlsym(driver, "cuMemFree_v2") != NULL;
}
