/* SPDX-License-Identifier: MIT
 *
 * From files to processes: each segment that was found, with the process that it belongs to and a checked copy, or the
 * reason why there is none.
 */
#ifndef POOLSTAT_COLLECT_H
#define POOLSTAT_COLLECT_H

#include "find.h"
#include "poolstat.h"
#include "segment.h"

enum liveness {
    LIVENESS_ALIVE,
    LIVENESS_ENDED, /* the process is gone, or says that it ends */
    LIVENESS_UNSEEN /* it runs in a pid namespace that cannot be seen from ours, if it still runs */
};

struct process {
    struct found file;
    uint32_t pid;       /* as we see it, 0 when unseen or ended */
    uint32_t inner_pid; /* in its own pid namespace */
    enum liveness liveness;
    enum code code;             /* CODE_OK: there is a copy; CODE_DENIED, CODE_DAMAGED: there is none */
    char why[SEGMENT_WHY_SIZE]; /* when there is none, in words that follow "the segment " */
    struct segment *segment;
    uint64_t read_unix_ns; /* when the copy was complete */
};

struct collection {
    struct process *processes; /* by pid */
    size_t count;
};

/* Without `ended_too`, of ended processes only the name is looked at, unless they lie in a namespace of their own. */
void collect(struct collection *collection, bool ended_too);
void collect_free_process(struct process *process);
void collect_free(struct collection *collection);

#endif
