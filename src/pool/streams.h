/* SPDX-License-Identifier: MIT
 *
 * The blocks that are free in the order of a stream, and who a stream is.
 * Included by internal.h alone.
 */
#ifndef POOLCUDA_POOL_STREAMS_H
#define POOLCUDA_POOL_STREAMS_H

/* One pool's blocks that were freed in the order of one stream. Guarded by the pool's lock. */
struct stream_list {
    uint64_t id;         /* of the stream; 0: the stream is gone, or the list unused */
    struct front *front; /* the stream's, NULL where there were no more: then it has no bins */
    struct free_index *index;
    uint64_t bytes;        /* in the index, as the next two */
    uint64_t oldest;       /* no block is of an earlier batch */
    uint64_t newest;       /* none is of a later one */
    uint64_t passed;       /* blocks of batches up to it are idle, by a mark on the stream itself */
    uint64_t marked;       /* the last batch that a mark was recorded for */
    unsigned joined;       /* frees since then, */
    unsigned enough;       /* of which so many make another: more and more while nobody asks for them */
    uint64_t joined_bytes; /* bytes of those that were no hits */
    uint16_t number;
    bool recordable;           /* a thread other than the freeing one may record on the stream */
    bool busy;                 /* somebody is in the driver with its mark or its stream */
    bool ending;               /* its context is about to go */
    struct device_fence *mark; /* recorded and not passed, or NULL */
    uint64_t mark_batch;
    struct device_context context; /* the stream's */
    struct device_stream stream;
    struct stream_list *next; /* pool->list_buckets, or pool->spare_lists */
};

#define MARK_FREES_MOST 1024u /* frees that make a mark, at most */
#define LIST_BUCKETS 64
#define LISTS_FEW 64 /* beyond, empty ones are taken for other streams */
#define LISTS_MOST 65535

/* What a thread found of a stream. */
struct stream_ref {
    _Alignas(128) uint64_t epoch; /* of the system it was found in; systems share none */
    uintptr_t handle;             /* of the stream, 0 where it has to be identified each time */
    struct front *ready;          /* the stream's, where a created stream's calls need ask nothing more; else NULL */
    struct pool *pool;            /* of the async kind, NULL: not looked for, or none */
    struct stream_list *list;     /* the stream's in that pool, if it still is */
    void *context;                /* current, for the default streams */
    struct device_stream called;  /* as the driver's plain entry points know it */
    struct device_stream_identity identity;
};

#define STREAM_REFS 16
extern _Thread_local struct stream_ref stream_refs[STREAM_REFS] __attribute__((tls_model("initial-exec")));
static inline struct stream_ref *stream_ref_place(uintptr_t handle) {
    return &stream_refs[(handle >> 4 ^ handle) % STREAM_REFS];
}

/* The stream as the calling thread means it: NULL and *code, the driver's answer; or with identity.id 0, when it cannot
 * be told from others. No lock held; streams_find_ref is the slow half. */
struct stream_ref *streams_find_ref(struct pool_system *system, struct device_stream stream, int *code);

/* The list of a stream in a pool: NULL when there is none; made when there is none, NULL when it cannot be. Under
 * pool->lock. */
struct stream_list *streams_find(const struct pool *pool, uint64_t id);
struct stream_list *streams_find_list(struct pool *pool, const struct stream_ref *ref);
static inline struct stream_list *streams_list(struct pool *pool, struct stream_ref *ref) {
    struct stream_list *list = ref->list;
    if (__builtin_expect(ref->pool == pool && list && list->id == ref->identity.id && !list->ending, 1)) return list;
    list = streams_find_list(pool, ref);
    if (ref->pool == pool) ref->list = list;
    return list;
}
/* What has been proved becomes idle. True when any block did. Under pool->lock. */
bool streams_reclaim(struct pool *pool);
/* Are there blocks that are free in the order of a stream? Under pool->lock. */
bool streams_hold(const struct pool *pool);
/* Record a mark on the list's stream, for the calling thread's own stream or a recordable one. Takes over pool->lock,
 * and leaves it. */
bool streams_mark(struct pool *pool, struct stream_list *list);
/* Ask about the marks of the pool's lists. True when one has passed. No lock held. */
bool streams_poll(struct pool *pool);
/* Are there blocks, of streams or not, for which neither a mark nor a fence was recorded? Under pool->lock. */
bool streams_unmarked(const struct pool *pool);
/* Without waiting, prove what can be proved of a pool's blocks: asks about marks and fences; then with `record` records
 * them where some are missing, but for the list `own`, and asks again. True when something became idle. No lock held;
 * the caller is counted in pool->inside. */
bool streams_prove(struct pool *pool, uint64_t own, bool record);
/* A list that a stream has left behind goes when it is empty. Under pool->lock. */
void streams_list_emptied(struct pool *pool, struct stream_list *list);
/* The pool's blocks are no more. No list is busy. Under pool->lock. */
void streams_forget(struct pool *pool);
/* Wait until no list is busy. Under pool->lock, which it leaves meanwhile. */
void streams_await_rest(struct pool *pool);
void streams_free(struct pool *pool);

#endif
