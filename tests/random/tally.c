/* SPDX-License-Identifier: MIT
 *
 * Counts, and a memory of the blocks freed last, by which reuses are known.
 */
#include "tally.h"

#include <pthread.h>

enum { FREED_KEPT = 512 };

struct tally tally;
struct programs_tally programs_tally;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { uint64_t address, bytes, lane; } freed[FREED_KEPT];
static unsigned freed_next;

void tally_freed(uint64_t address, uint64_t bytes, uint64_t lane) {
    if (lane == 0) return;
    pthread_mutex_lock(&lock);
    freed[freed_next].address = address;
    freed[freed_next].bytes = bytes;
    freed[freed_next].lane = lane;
    freed_next = (freed_next + 1) % FREED_KEPT;
    pthread_mutex_unlock(&lock);
}

void tally_first_use(uint64_t address, uint64_t bytes, uint64_t lane) {
    unsigned met = 0, crossed = 0;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < FREED_KEPT; i++) {
        if (freed[i].bytes == 0 || freed[i].address >= address + bytes || address >= freed[i].address + freed[i].bytes)
            continue;
        met++;
        crossed += freed[i].lane != lane;
        freed[i].bytes = 0;
    }
    pthread_mutex_unlock(&lock);
    if (met > 0) TALLY(reuses);
    if (crossed > 0) TALLY(reuses_crossed);
}

void tally_program_ended(void) {
#define PROGRAM_ENDED(name) programs_tally.name.programs += atomic_exchange(&programs_tally.name.now, false);
    PROGRAMS_DID(PROGRAM_ENDED)
#undef PROGRAM_ENDED
}
