/* SPDX-License-Identifier: MIT
 *
 * A library with a dlsym of its own, which finds nothing, under the version of libc's.
 */
#include <stddef.h>

void *dlsym(void *handle, const char *name);

void *dlsym(void *handle, const char *name) {
    (void)handle;
    (void)name;
    return NULL;
}
