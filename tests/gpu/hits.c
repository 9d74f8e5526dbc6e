/* SPDX-License-Identifier: MIT
 *
 * What a pair of allocation and free costs by one door (door.h), where the pool serves it: prints the nanoseconds of
 * each batch of pairs, over a few hundred live blocks. Natively it makes fewer pairs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "door.h"

enum { LIVE = 256, BATCHES = 50, BYTES = 65536 };

static double now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

int main(int argc, char **argv) {
    const int pairs = argc > 1 ? atoi(argv[1]) : 1000;
    void *block;
    int failed = start();
    for (int i = 0; i < LIVE && !failed; i++) failed = take(&block, BYTES);
    for (int batch = -2; batch < BATCHES && !failed; batch++) {
        const double begin = now_ns();
        for (int i = 0; i < pairs && !failed; i++) {
            failed = take(&block, BYTES);
            failed = failed || give_back(block);
        }
        if (batch >= 0) printf("%.1f\n", (now_ns() - begin) / pairs);
    }
    size_t free_bytes, total;
    failed = failed || memory(&free_bytes, &total);
    if (failed) printf("failed: %d\n", failed);
    return failed != 0;
}
