/* SPDX-License-Identifier: MIT
 *
 * Stands in for libpoolcuda.so where only its loading is tested: tells by an environment variable that it was loaded.
 */
#include <stdlib.h>

__attribute__((constructor)) static void tell(void) {
    setenv("STUB_LOADED", "yes", 1);
}
