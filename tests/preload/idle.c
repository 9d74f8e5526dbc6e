/* SPDX-License-Identifier: MIT
 *
 * A program that makes no CUDA call.
 */
#include "sequence.h"

int main(void) {
    wait_for_reader();
    return 0;
}
