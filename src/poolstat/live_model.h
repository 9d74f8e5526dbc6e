/* SPDX-License-Identifier: MIT
 *
 * What the live view knows: each process from the first look to a while after its end, its last copy, and how its
 * figures went; which of them are shown and in what order. Knows nothing of terminals.
 */
#ifndef POOLSTAT_LIVE_MODEL_H
#define POOLSTAT_LIVE_MODEL_H

#include "collect.h"
#include "derive.h"

#define LIVE_HISTORY 512u                         /* samples, one for each refresh */
#define LIVE_ENDED_SHOWN_NS UINT64_C(10000000000) /* how long a process that ended stays */

enum live_figure { LIVE_FIGURE_LIVE, LIVE_FIGURE_CACHED, LIVE_FIGURE_RESERVED, LIVE_FIGURE_RATE, LIVE_FIGURES };

/* A ring; NaN is unknown. */
struct live_history {
    double samples[LIVE_FIGURES][LIVE_HISTORY];
    size_t count, next;
};

/* The last `most` values, oldest first; returns how many. */
size_t live_history_values(const struct live_history *history, enum live_figure figure, double *values, size_t most);

/* One process on one device, or without one. */
struct live_row {
    uint64_t id; /* of no other row, ever */
    struct live_process *process;
    bool has_device;
    struct device_sum sum; /* its identity is the process's */
    double alloc_rate;     /* allocations in a second, since the copy before; NaN: unknown */
    uint64_t counted_allocs, counted_ns;
    struct live_history history;
};

struct live_process {
    uint64_t id;            /* of no other process, ever */
    struct process process; /* the last copy, or why there is none */
    struct segment *then;   /* to count from (since_note); NULL: the start */
    struct segment *since;  /* the copy's counters since then; NULL: the copy itself */
    char *command;          /* safe; "-" when unknown */
    uint64_t ended_ns;      /* when its end was seen; 0: it runs */
    bool seen;              /* at the last look */
    struct live_row **rows; /* at least one */
    size_t row_count;
};

/* X(name, title): what rows can be sorted by, in the order of columns. */
#define LIVE_SORTS(X)       \
    X(PID, "PID")           \
    X(DEVICE, "GPU")        \
    X(COMMAND, "COMMAND")   \
    X(LIVE, "LIVE")         \
    X(CACHED, "CACHED")     \
    X(RESERVED, "RESERVED") \
    X(PEAK, "PEAK")         \
    X(HITS, "HITS")         \
    X(RATE, "ALLOC/S")      \
    X(FRAGMENTATION, "EXTFRAG")

#define LIVE_SORT(name, title) LIVE_SORT_##name,
enum live_sort { LIVE_SORTS(LIVE_SORT) LIVE_SORT_COUNT };
#undef LIVE_SORT

struct live_model {
    struct live_process **processes;
    size_t process_count;
    struct live_row **shown; /* of the processes' rows, in their order on the screen */
    size_t shown_count;
    enum live_sort sort; /* names and numbers of processes rise, figures fall; `inverted`: the other way round */
    bool inverted;
    char *filter; /* a row that does not have it is not shown; NULL: all are */
    uint64_t updated_ns;
    uint64_t counting_since_ns; /* 0: from each process's start */
    size_t denied, unseen;      /* segments that are not shown */
    uint64_t last_id;
};

void live_model_start(struct live_model *model);
void live_model_free(struct live_model *model);

/* Takes what was collected, which is empty then. `ended_too`: ended processes stay as long as they are collected. */
void live_model_update(struct live_model *model, struct collection *collection, uint64_t now_ns, bool ended_too);

void live_model_sort(struct live_model *model, enum live_sort sort, bool inverted);
void live_model_filter(struct live_model *model, const char *text); /* "" and NULL: no filter */

void live_model_count_from_here(struct live_model *model);
void live_model_count_all(struct live_model *model);

struct live_process *live_model_process(const struct live_model *model, uint64_t id); /* NULL: it is gone */

const char *live_sort_title(enum live_sort sort);
bool live_sort_rises(const struct live_model *model);

/* The process's figures as they are shown; NULL when there are none. */
const struct segment *live_segment(const struct live_process *process);

/* Does the row have the text, in any case of letters: its pid, command, device or state? */
bool live_row_matches(const struct live_row *row, const char *text);

#endif
