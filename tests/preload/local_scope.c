/* SPDX-License-Identifier: MIT
 *
 * A library loaded RTLD_LOCAL that finds its own names by RTLD_DEFAULT, as only the true caller can.
 */
#include <dlfcn.h>

int local_secret(void);
const char *local_tells(void);

int local_secret(void) {
    return 1;
}

const char *local_tells(void) {
    if (dlsym(RTLD_DEFAULT, "local_secret") != (void *)local_secret) return "own name not found";
    if (dlsym(RTLD_NEXT, "local_secret")) return "own name found behind itself";
    return "own name found";
}
