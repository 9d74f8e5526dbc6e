/* SPDX-License-Identifier: MIT
 *
 * A note from the runtime door to the driver door of the same thread, while the real runtime function that lies between
 * them runs: so one request is not pooled or counted twice, and the runtime itself makes the error of an answer that is
 * already known.
 */
#ifndef POOLCUDA_ENTRY_MARK_H
#define POOLCUDA_ENTRY_MARK_H

#include <stdint.h>

enum mark_kind {
    MARK_NONE = 0,
    MARK_AGAIN, /* try the pool (again): the runtime has made a context current by then */
    MARK_PASS,  /* not the pool's, and counted */
    MARK_ANSWER /* give `answer` */
};

enum mark_call { MARK_ALLOC = 1, MARK_FREE, MARK_ALLOC_ASYNC, MARK_FREE_ASYNC };

struct mark {
    enum mark_kind kind;
    enum mark_call call; /* the driver call meant: the runtime makes others on its way */
    uint64_t value;      /* its size or address */
    int answer;
};

extern _Thread_local struct mark entry_mark __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* The driver door: the note for this call, taken; kind MARK_NONE when there is none. */
static inline struct mark mark_take(enum mark_call call, uint64_t value) {
    struct mark mark = {.kind = MARK_NONE};
    if (__builtin_expect(entry_mark.kind != MARK_NONE, 0) && entry_mark.call == call && entry_mark.value == value) {
        mark = entry_mark;
        entry_mark.kind = MARK_NONE;
    }
    return mark;
}

#endif
