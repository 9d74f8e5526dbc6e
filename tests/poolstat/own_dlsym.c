/* SPDX-License-Identifier: MIT
 *
 * A program for `doctor`: exports a dlsym of its own (-DDEFINES), or only uses libc's.
 */
#include <dlfcn.h>
#include <stdio.h>

#ifdef DEFINES
void *dlsym(void *handle, const char *name) {
    (void)name;
    return handle;
}
#endif

int main(void) {
    return dlsym(RTLD_DEFAULT, "no_such_function") == (void *)stdout;
}
