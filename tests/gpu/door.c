/* SPDX-License-Identifier: MIT
 *
 * One program for every door (door.h). Makes the calls of sequence.h, and then keeps some blocks while it is looked
 * at. Prints free device memory before these, with them, and after.
 */
#include <stdio.h>

#include "../preload/sequence.h"
#include "door.h"

enum { BLOCKS = 40 };

static int say_memory(const char *when) {
    size_t free_bytes, total;
    const int code = memory(&free_bytes, &total);
    printf("%s: %zu\n", when, free_bytes);
    return code;
}

int main(void) {
    void *blocks[BLOCKS];
    int failed = start();
    if (failed) printf("start: %d\n", failed);
    failed = failed || say_memory("before");
    if (!failed) failed = run_sequence(take, give_back);
    for (int i = 0; i < BLOCKS && !failed; i++) failed = take(&blocks[i], 10 * MIB + 1000);
    failed = failed || say_memory("live");
    wait_for_reader();
    for (int i = 0; i < BLOCKS && !failed; i++) failed = give_back(blocks[i]);
    failed = failed || say_memory("after");
    printf("failed: %d\n", failed);
    return failed != 0;
}
