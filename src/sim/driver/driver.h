/* SPDX-License-Identifier: MIT
 *
 * The inside of the simulated driver: its objects, and what each file offers to the others.
 *
 * Locks, in the order in which they may be taken: a device's primary_lock, scheduler_lock, memory_lock; the handle
 * tables' own locks and race_lock are innermost. None but the first, which orders the ends and beginnings of a primary
 * context, is held while a call waits.
 */
#ifndef SIM_DRIVER_H
#define SIM_DRIVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The header as the driver itself sees it: every revision of a name, and no macro that renames one to another. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include "names.h"
#include "settings.h"

#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

enum {
    DEVICE_MAX = 16,
    CONTEXT_STACK_MAX = 64,
    DEVICE_MULTIPROCESSORS = 132,
    MEMORY_UNIT = 512, /* bytes; addresses and small sizes are multiples of it */
    CHUNK_SHIFT = 21,
    CHUNK_BYTES = 1 << CHUNK_SHIFT, /* device memory is taken and given back in pieces of 2 MiB */
    CHUNK_UNITS = CHUNK_BYTES / MEMORY_UNIT
};

struct allocation;
struct capture;
struct context;
struct device;
struct event;
struct graph;
struct graph_memory;
struct green;
struct node;
struct opened_memory;
struct operation;
struct pool;
struct pool_arena;
struct pool_block;
struct race_clock;
struct stream;

#pragma GCC visibility push(hidden)

/* ---- handles.c: objects behind handles. Their memory is never given back, so a stale handle can be looked at. ---- */

enum handle_state { HANDLE_UNUSED, HANDLE_LIVE, HANDLE_DEAD };

/* First member of every object with a handle. */
struct handle {
    _Atomic(int) state;
    struct handle *next_free;
};

struct handle_table {
    const size_t size;       /* of an object */
    const size_t limit;      /* number of objects */
    const bool prefer_fresh; /* a destroyed object's handle comes back only when no fresh one is left */
    pthread_mutex_t lock;
    _Atomic(char *) objects;
    _Atomic(size_t) used;
    struct handle *free;
};

#define HANDLE_TABLE(type, limit_, prefer_fresh_) \
    { .size = sizeof(type), .limit = (limit_), .prefer_fresh = (prefer_fresh_), .lock = PTHREAD_MUTEX_INITIALIZER }

/* A zeroed object, still unused: handle_publish makes its handle valid. NULL when the table is full. */
void *handle_new(struct handle_table *table);
void handle_publish(void *object);
/* Makes the handle invalid; false if it was not live. The object stays until handle_release. */
bool handle_kill(void *object);
void handle_release(struct handle_table *table, void *object);
/* UNUSED for anything that was never a handle of this table. */
enum handle_state handle_state_of(struct handle_table *table, const void *object);

/* The answer for a handle: 0, 709 for a destroyed one, 400 for what never was one. */
CUresult handle_check(struct handle_table *table, const void *object);

/* ---- entry.c: the beginning of every call, the threads that call, start and end of the process ---- */

enum entry_state { ENTRY_CLOSED, ENTRY_OPEN, ENTRY_WATCHED, ENTRY_DOWN };

/* Alone in a page that a child process finds zeroed, so that a child sees a closed driver however it was forked. */
struct entry_page {
    _Atomic(int) state;
};
extern struct entry_page *entry_page;

/* The per-thread default stream of one context. */
struct thread_stream {
    struct context *context;
    uint64_t context_id;
    struct stream *stream;
    struct thread_stream *next;
};

/* One for each thread that ever called; taken over by a new thread when its own has ended, so that none is freed. */
struct thread {
    _Atomic(struct thread *) next;
    _Atomic(bool) taken;
    bool in_callback;                /* runs a host function or a kernel's: may not call */
    const struct operation *running; /* the host function */
    unsigned allocator_depth;        /* sim_allocator_entered */
    struct context *current;
    struct context *stack[CONTEXT_STACK_MAX]; /* below `current` */
    unsigned stack_depth;
    CUstreamCaptureMode capture_mode;
    uint64_t id; /* of the thread, never reused */
    struct thread_stream *streams;
    _Atomic(uint64_t) counts[NAME_COUNT]; /* written by the thread alone */
};

extern _Thread_local struct thread *entry_thread __attribute__((tls_model("initial-exec")));

struct thread *entry_attach(void);
CUresult entry_refuse(const struct thread *thread, enum driver_name name);
CUresult entry_apply_rules(enum driver_name name);
uint64_t entry_count(enum driver_name name);
void entry_counts_reset(void);
/* A time that a call is set to take. */
void entry_delay(uint32_t microseconds);

static inline struct thread *entry_current_thread(void) {
    struct thread *const thread = entry_thread;
    return LIKELY(thread != NULL) ? thread : entry_attach();
}

static inline void entry_note(struct thread *thread, enum driver_name name) {
    const uint64_t count = atomic_load_explicit(&thread->counts[name], memory_order_relaxed);
    atomic_store_explicit(&thread->counts[name], count + 1, memory_order_relaxed);
}

static inline CUresult entry_begin(struct thread *thread, enum driver_name name) {
    entry_note(thread, name);
    const int state = atomic_load_explicit(&entry_page->state, memory_order_acquire);
    if (LIKELY(state == ENTRY_OPEN && !thread->in_callback)) return CUDA_SUCCESS;
    return entry_refuse(thread, name);
}

/* First line of a driver call: counts it, answers where no call may go on, gives `thread`. */
#define DRIVER_ENTER(name)                                      \
    struct thread *const thread = entry_current_thread();       \
    const CUresult refusal_ = entry_begin(thread, NAME_##name); \
    if (UNLIKELY(refusal_ != CUDA_SUCCESS)) return refusal_;    \
    (void)thread

/* A call without a stream. */
#define DRIVER_CALL(name, parameters, expression) \
    CUresult name parameters {                    \
        DRIVER_ENTER(name);                       \
        return expression;                        \
    }

/* A call whose stream 0 means the legacy stream, or in its second form the thread's own: DEFAULT_STREAM, and STREAM(s).
 */
#define DRIVER_STREAM_CALL(name, suffix, parameters, expression) \
    CUresult name parameters {                                   \
        const CUstream default_stream = CU_STREAM_LEGACY;        \
        DRIVER_ENTER(name);                                      \
        return expression;                                       \
    }                                                            \
    CUresult name##suffix parameters {                           \
        const CUstream default_stream = CU_STREAM_PER_THREAD;    \
        DRIVER_ENTER(name##suffix);                              \
        return expression;                                       \
    }
#define STREAM(stream) ((stream) != NULL ? (stream) : default_stream)

/* ---- symbols.c, exports.c: what the driver lacks, because it is old or set to ---- */

bool symbols_is_missing(const struct name_entry *entry);
/* dlsym does not find it any more. */
void exports_hide_missing(void);

/* ---- shares.c: how one process reaches device memory of another ---- */

/* What a descriptor is of, should the program close it and get its number again. */
struct file_identity {
    dev_t device;
    ino_t inode; /* 0: of nothing */
};
struct file_identity shares_file_identity(int descriptor);
bool shares_file_is(int descriptor, struct file_identity file);

/* Never the same for two processes. */
struct shares_process {
    unsigned char name[16];
};

/* What travels between processes, in 64 bytes. */
struct shares_handle {
    char mark[8];
    struct shares_process process;
    uint64_t address, buffer_id;
    uint64_t device; /* on the machine */
    uint64_t pool;   /* the exporter's number of it; 0: none */
    uint64_t checksum;
};

void shares_seal(struct shares_handle *handle, const char *mark);
/* False for what was not sealed with this mark. */
bool shares_read(struct shares_handle *handle, const void *bytes, const char *mark);

/* Where memory lies in the file of its device. */
struct shares_place {
    int64_t device;  /* on the machine */
    uint64_t offset; /* of its first chunk */
    uint64_t inside; /* from there to its first byte */
    uint64_t bytes;
};

/* From now on other processes may ask for memory of this one; its name. */
bool shares_start(struct shares_process *process);
bool shares_is_self(const struct shares_process *process);
/* Asks the process that made the handle; the file, to be closed, or -1 where it or the memory is gone. Waits for that
 * process: no lock may be held. */
int shares_ask(const struct shares_handle *handle, struct shares_place *place);
/* Maps it for the context, or for all (NULL). 1 where the process does not see its device, 205 where it cannot be
 * mapped. Under memory_lock, as the other. */
CUresult shares_map(struct context *context, int file, const struct shares_place *place,
                    struct allocation **allocation);
void shares_unmap(const struct allocation *allocation);

/* ---- devices.c ---- */

/* Bytes of memory of graphs: allocated, and taken from the device; with the most since they were last set back. */
struct graph_memory_figures {
    uint64_t used, used_high, reserved, reserved_high;
};

struct device {
    int ordinal;  /* in this process */
    int physical; /* on the machine: identity does not depend on CUDA_VISIBLE_DEVICES */
    size_t total_bytes;
    CUuuid uuid;
    struct context *primary;
    pthread_mutex_t primary_lock;
    struct pool *default_pool, *current_pool;  /* memory_lock */
    struct graph_memory *graph_memory;         /* all of the device; memory_lock */
    struct graph_memory_figures graph_figures; /* memory_lock */

    /* Device memory, backing.c. `base` is what programs see and may not touch; `shadow` is the same memory for us. */
    uint64_t base;
    char *shadow;
    int memory_file;
    struct file_identity memory_file_identity;
    size_t chunk_count;        /* of the address range, which is larger than the memory */
    uint64_t *chunk_taken;     /* a bit each; memory_lock */
    size_t lowest_free;        /* no chunk before it is free; memory_lock */
    _Atomic(uint8_t) *touched; /* chunks that were written to, so that untouched ones cost nothing to give back */
    _Atomic(size_t) used_bytes;
};

extern struct device devices[DEVICE_MAX];
extern int device_count;

/* Reads what devices there are to be; the answer of cuInit. */
CUresult devices_start(void);

static inline struct device *device_of(CUdevice ordinal) {
    return ordinal >= 0 && ordinal < device_count ? &devices[ordinal] : NULL;
}

static inline struct device *device_on_machine(int64_t physical) {
    for (int i = 0; i < device_count; i++)
        if (devices[i].physical == physical) return &devices[i];
    return NULL;
}

/* ---- race.c: what a context, and a green one, keeps for the race detector; scheduler_lock ---- */

struct race_context {
    struct race_clock *barrier;                      /* comes before all later work */
    struct race_clock *departed, *departed_blocking; /* of streams that are gone */
};

/* ---- contexts.c ---- */

enum { CONTEXT_LIMITS = CU_LIMIT_MAX };

struct slab;

struct context {
    struct handle handle;
    struct device *device;
    bool primary;
    struct green *green; /* whose handle this is, and nothing else; or NULL */
    unsigned api_version;
    _Atomic(unsigned) flags;
    _Atomic(bool) active;
    _Atomic(int) error;         /* sticky: the answer of every later call */
    _Atomic(uint64_t) id;       /* never reused; a new one when a primary context comes back */
    unsigned retains;           /* primary; primary_lock */
    _Atomic(unsigned) attached; /* created: uses beyond the first */
    _Atomic(size_t) limits[CONTEXT_LIMITS];
    _Atomic(uint32_t) peers; /* devices whose memory it may use: a bit each */

    /* scheduler_lock */
    struct stream *legacy;
    struct stream *streams;    /* all of the context, destroyed ones with work left included */
    struct operation *barrier; /* all later work waits for it; held */
    struct event *events;
    _Atomic(size_t) pending; /* operations not yet completed */
    struct race_context race;

    /* memory_lock */
    struct allocation *allocations;
    struct slab **slabs;
    uint16_t *slab_runs; /* for each, a bound: no free run in it is longer */
    size_t slab_count, slab_capacity;
    size_t slab_roomy; /* those before it are full */
    bool lazy_taken;
    size_t driver_bytes; /* of its device, taken by the driver for itself */
};

extern struct handle_table context_table;

CUresult contexts_start(void);
/* The thread's current context, or why there is none: 201, 709, or its sticky error. */
CUresult context_current(const struct thread *thread, struct context **context);
/* The same for a handle; NULL is the current one. */
CUresult context_named(const struct thread *thread, CUcontext handle, struct context **context);
/* The green context whose handle was named so, or is current; NULL for others. */
struct green *context_green(const struct thread *thread, CUcontext handle);
void context_fail(struct context *context, CUresult error);
CUresult primary_retain(CUcontext *context, CUdevice ordinal);
CUresult primary_release(CUdevice ordinal);

/* ---- backing.c: address ranges and the memory behind them ---- */

CUresult backing_start(struct device *device);
/* All under memory_lock. `charged`: whether physical memory is taken too. 0 when there is none. */
uint64_t backing_take(struct device *device, size_t chunks, bool charged);
void backing_give(struct device *device, uint64_t address, size_t chunks, bool charged);
bool backing_charge(struct device *device, size_t bytes);
void backing_discharge(struct device *device, size_t bytes);
/* Memory of another process, at an address of the device's; 0 when there is none. */
uint64_t backing_map(struct device *device, int file, uint64_t offset, size_t chunks);
void backing_unmap(struct device *device, uint64_t address, size_t chunks);

/* Where the simulator reads and writes the memory at `address`: for a host address that address itself. */
char *backing_pointer(uint64_t address);
void backing_touch(uint64_t address, size_t bytes);
struct device *backing_device(uint64_t address);

/* ---- memory.c: every allocation of the process, and cuMemAlloc ---- */

enum allocation_kind {
    ALLOCATION_PLAIN,
    ALLOCATION_POOL,
    ALLOCATION_MANAGED,
    ALLOCATION_HOST,
    ALLOCATION_REGISTERED,
    ALLOCATION_GRAPH, /* what nodes of graphs allocate: an address, and memory once it is launched */
    ALLOCATION_OPENED /* memory of another process, by its handle, or imported with a pool */
};

struct allocation {
    uint64_t address;
    size_t bytes; /* as requested */
    enum allocation_kind kind;
    bool sync_memops;
    bool leaving; /* a free has begun */
    unsigned flags;
    uint64_t buffer_id;
    struct device *device;   /* where it lies, or was made */
    struct context *context; /* NULL for memory of pools, which outlives contexts */
    union {
        struct slab *slab;                 /* PLAIN below 2 MiB */
        struct pool_block *block;          /* POOL */
        struct graph_memory *graph_memory; /* GRAPH */
        struct opened_memory *opened;      /* OPENED by a handle */
    };
    struct pool *pool;
    size_t taken_bytes;                      /* PLAIN from 2 MiB, GRAPH, HOST, MANAGED, OPENED: size of the range */
    struct allocation *previous, *following; /* of the context */
};

extern pthread_mutex_t memory_lock;

/* All under memory_lock. */
struct allocation *memory_find(uint64_t address);
struct allocation *memory_find_overlap(uint64_t address, size_t bytes);
struct allocation *memory_add(uint64_t address, size_t bytes, enum allocation_kind kind, struct device *device,
                              struct context *context);
void memory_remove(struct allocation *allocation);
/* Whether work of the context may use it: its own device's, and that of peers. */
bool memory_may_use(const struct allocation *allocation, const struct context *context);
/* Gives back one allocation of any kind but REGISTERED. */
void memory_discard(struct allocation *allocation);

/* Memory that the driver takes for itself, until the context goes; false when there is none. Under the lock. */
bool memory_take_for_driver(struct context *context, size_t bytes);

/* What a context leaves behind when it goes. Takes the lock. */
void memory_context_discard(struct context *context);

/* Whether [address, address + bytes) lies in one live allocation, or wholly in host memory. Takes the lock. */
CUresult memory_check_range(uint64_t address, size_t bytes);
/* Whether a kernel of `context` may use the range. Takes the lock. */
bool memory_accessible(const struct context *context, uint64_t address, size_t bytes);
/* Host memory that CUDA knows to be pinned or managed. Takes the lock. */
bool memory_is_pinned(uint64_t address);

/* ---- ipc.c: memory that another process opens by a handle ---- */

/* Unmaps it, whatever its count. Under memory_lock. */
void ipc_discard(struct allocation *allocation);

/* ---- pools.c: memory pools; async.c: allocation in the order of a stream ---- */

enum { POOL_BINS = 512 };

/* A piece of what a pool holds. */
struct pool_block {
    struct pool_arena *arena;
    struct pool_block *before, *after; /* neighbours in the arena */
    uint64_t address;
    size_t bytes; /* a multiple of MEMORY_UNIT */
    bool free;
    uint64_t freed_on;       /* id of the stream whose later work may use it at once; 0: anybody may */
    struct operation *freed; /* after which anybody may; held; NULL: now */
    struct pool_block *previous_free, *next_free;
};

struct pool {
    struct handle handle;
    struct device *device;
    uint64_t id; /* never reused */
    bool is_default, exportable, imported, destroyed;
    struct shares_process owner;       /* imported: whose it is, */
    uint64_t owner_id;                 /* and which of that one's */
    size_t most;                       /* bytes that it may reserve; 0: any number */
    _Atomic(uint32_t) readers_writers; /* other devices that may use its memory: a bit each */

    /* memory_lock */
    int follow_events, opportunistic, internal_dependencies;
    uint64_t threshold;
    uint64_t reserved, reserved_high, used, used_high;
    struct pool_arena *arenas;
    struct pool_block *pending;         /* freed, but not yet for all */
    struct pool_block *bins[POOL_BINS]; /* free for all, by size */
    uint64_t bins_used[POOL_BINS / 64]; /* a bit for each that is not empty */
    size_t live;
    struct pool *next; /* of all */
};

CUresult pools_start(struct device *device);
/* NULL when out of memory. */
struct pool *pool_make(struct device *device);
/* The pool behind a handle; 1 if there is none. */
CUresult pool_named(CUmemoryPool handle, struct pool **pool);
bool pool_may_access(const struct pool *pool, const struct device *device);
/* Whether the range is mapped for the context by a pool, in a block or not: work that was submitted before a
 * stream-ordered free runs when the block is long the pool's again. Under memory_lock. */
bool pools_hold(const struct context *context, uint64_t address, size_t bytes);

/* Both under memory_lock. Gives back free arenas as long as the pool keeps `keep` bytes. */
void pool_trim(struct pool *pool, uint64_t keep);
/* A destroyed pool without live memory goes, if its last free has happened; else a later synchronise tries again. */
bool pool_end(struct pool *pool);

/* Both under memory_lock. *wait_for: what the allocation must come after besides its stream, held; or NULL. */
CUresult pool_alloc(struct pool *pool, size_t bytes, const struct stream *stream, CUdeviceptr *address,
                    struct operation **wait_for);
/* `freed`: the operation after which others may have the block, NULL: at once. */
void pool_free(struct allocation *allocation, const struct stream *stream, struct operation *freed);

/* ---- pool_shares.c: pools that are shared with other processes ---- */

/* Unmaps imported memory. Under memory_lock. */
void pool_import_discard(const struct allocation *allocation);

extern _Atomic(bool) pools_over_threshold;
void pools_release_excess(void);
/* At the end of every stream, event or context synchronise. */
static inline void pools_after_synchronize(void) {
    if (UNLIKELY(atomic_load_explicit(&pools_over_threshold, memory_order_relaxed))) pools_release_excess();
}

/* Discards an allocation if it is still the one that had this id; of one of a graph, ends a use. `freed`: the operation
 * that frees it; NULL: a call. Takes the lock. */
void async_discard(uint64_t address, uint64_t buffer_id, const struct operation *freed);

/* ---- scheduler.c: the one place where work is submitted, ordered and run. ---- */

enum operation_kind {
    OPERATION_KERNEL,
    OPERATION_COPY,
    OPERATION_FILL,
    OPERATION_HOST_FUNCTION,
    OPERATION_CALLBACK,
    OPERATION_RECORD,
    OPERATION_WAIT,
    OPERATION_ALLOC,
    OPERATION_FREE
};

struct operation_range {
    uint64_t address;
    size_t bytes;
    bool writes;
};

/* A box of bytes in memory: rows `pitch` apart, slices `slice` apart. */
struct operation_box {
    uint64_t address;
    size_t pitch, slice;
};

/* What a kernel of the test interface computes, and its name there. */
struct operation_program {
    _Atomic(unsigned) references;
    void (*run)(void *argument, void *const *pointers); /* or NULL */
    const char *name;
    uint64_t number;
    _Alignas(max_align_t) char argument[];
};

struct operation_edge {
    struct operation *dependent;
    struct operation_edge *next;
};

struct operation {
    enum operation_kind kind;
    _Atomic(unsigned) references;
    _Atomic(bool) done;
    bool timed;   /* note when it completes */
    bool awaited; /* the submitter waits for it, and may as well run it */
    struct context *context;
    struct stream *stream; /* NULL for work of the whole context; valid until done */
    uint64_t finished_ns;  /* valid once done, if timed */

    struct race_clock *clock; /* what it comes after, itself included, if the race detector saw it submitted; held */

    /* scheduler_lock */
    size_t blockers;                   /* operations that must complete before */
    struct operation_edge *dependents; /* those that wait for this one */
    struct operation *next_ready;

    /* What it reads and writes, for checking; owned. */
    size_t range_count;
    struct operation_range *ranges;

    union {
        struct {
            uint32_t microseconds;
            uint64_t release_round; /* ends when scheduler_release_kernels goes beyond it; 0: by its time alone */
            struct operation_program *program; /* held; or NULL */
        } kernel;
        struct {
            struct operation_box to, from;
            size_t width, height, depth;
            void *staged; /* copy of pageable host memory, owned; or NULL */
        } copy;
        struct {
            struct operation_box to;
            size_t width, height; /* width in elements */
            uint32_t value;
            unsigned element; /* bytes */
        } fill;
        struct {
            uint64_t address, buffer_id; /* of memory to discard; 0: none */
        } memory;
        struct {
            CUhostFn function;
            CUstreamCallback callback;
            CUstream handle; /* as the callback is told it */
            void *argument;
        } host;
        struct event *event; /* RECORD, WAIT in a graph: which it records or waits for when launched; or NULL */
    };
};

extern pthread_mutex_t scheduler_lock;

/* NULL when out of memory. One reference, the caller's. */
struct operation *operation_new(enum operation_kind kind);
struct operation *operation_hold(struct operation *operation);
void operation_drop(struct operation *operation);
/* The same work, to be submitted by itself; without what is staged. NULL when out of memory. */
struct operation *operation_copy(const struct operation *operation);
/* Notes a range in operation->ranges; false when out of memory. */
bool operation_uses(struct operation *operation, uint64_t address, size_t bytes, bool writes);

static inline bool operation_is_done(const struct operation *operation) {
    return atomic_load_explicit(&operation->done, memory_order_acquire);
}

/* Submits to a stream that does not capture. Blocks while the stream is full. */
void scheduler_submit(struct operation *operation, struct stream *stream, struct operation *const *after, size_t count);
/* An operation, its stream, and what it comes after besides. */
struct submission {
    struct operation *operation;
    struct stream *stream;
    struct operation *const *after;
    size_t count;
};
/* Submits all, with nothing of others between them. All but the first must come after it, directly or not. Blocks while
 * the first one's stream is full. */
void scheduler_submit_together(const struct submission *submissions, size_t count);
/* Work of the whole context, or of those of its streams that belong to a green one: comes after all that was submitted
 * to them before... */
void scheduler_submit_after_context(struct operation *operation, struct context *context, const struct green *green);
/* ...or after `earlier`, and before all that is submitted to them later. */
void scheduler_submit_before_context(struct operation *operation, struct context *context, struct green *green,
                                     struct operation *earlier);
void scheduler_wait(struct operation *operation);
void scheduler_wait_context(struct context *context);
void scheduler_wait_stream(struct stream *stream);
bool scheduler_stream_is_idle(struct stream *stream);
uint64_t scheduler_release_round(void);
void scheduler_release_kernels(void);
uint64_t scheduler_now_ns(void);

/* ---- capture.c: work recorded instead of run, in graphs (graph.h) ---- */

/* Nodes, each once; the array is owned. */
struct node_list {
    struct node **nodes;
    size_t count;
};

/* One sequence, from begin to end; kept by its streams and by the events recorded in it. All under scheduler_lock. */
struct capture {
    unsigned references;
    uint64_t id;
    uint64_t thread; /* that began it */
    CUstreamCaptureMode mode;
    bool invalidated, ended;
    struct stream *origin;
    struct stream *streams; /* origin and those that joined */
    struct graph *graph;
    bool graph_is_own;    /* made for it, and not yet given to anybody */
    size_t nodes_before;  /* that were in the graph when it began */
    struct capture *next; /* of all not ended */
};

extern _Atomic(unsigned) capture_running; /* captures not ended */

/* Submits to the stream, or records if it captures. Takes over the reference to `operation`, whatever the answer. */
CUresult capture_or_submit(struct stream *stream, struct operation *operation, struct operation *const *after,
                           size_t count);

/* Records on a stream that captures. Under scheduler_lock; takes over the reference as above. */
CUresult capture_record(struct stream *stream, struct operation *operation);

/* For calls that are unsafe while something captures: 900, and what they conflict with is invalidated. */
CUresult capture_refuse_unsafe_slow(const struct thread *thread);
static inline CUresult capture_refuse_unsafe(const struct thread *thread) {
    if (LIKELY(atomic_load_explicit(&capture_running, memory_order_acquire) == 0)) return CUDA_SUCCESS;
    return capture_refuse_unsafe_slow(thread);
}
/* For work of a whole context, or a green one within it: 900 while any of its streams captures. */
CUresult capture_refuse_context(const struct context *context, const struct green *green);
/* For a synchronise of a context: 900 while any stream of its device captures. */
CUresult capture_refuse_device(const struct context *context);
/* For work on the legacy stream: 906 while a blocking stream of the context captures. */
CUresult capture_refuse_implicit(const struct context *context);
/* For a synchronous call on a stream: that, and the rules of an unsafe call. */
CUresult capture_refuse_synchronous(const struct thread *thread, struct stream *stream);
/* Does it capture, be it invalidated? */
bool capture_is_running(const struct stream *stream);
/* What a call on a capturing stream does when its arguments are wrong. */
void capture_invalidate(struct stream *stream);
/* For a question about a stream that a captured one must not be asked: 900, invalidated. `mode_matters`: a relaxed
 * capture allows it. */
CUresult capture_refuse_stream(struct stream *stream, bool mode_matters);

/* All under scheduler_lock. */
void capture_drop(struct capture *capture);
void capture_stream_gone(struct stream *stream);
CUresult capture_join(struct stream *stream, struct capture *capture, const struct node_list *tail);

/* ---- streams.c ---- */

enum { STREAM_PRIORITY_GREATEST = -5 };

struct stream {
    struct handle handle;
    _Atomic(unsigned) references; /* its handle or context, and every operation not completed */
    struct context *context;
    unsigned flags; /* CU_STREAM_NON_BLOCKING or 0 */
    int priority;
    bool legacy;
    struct green *green; /* whose stream it is; or NULL */
    uint64_t id;         /* never reused */

    /* scheduler_lock */
    struct stream *previous, *following; /* of the context */
    struct operation *last;              /* the last not completed, or NULL; held */
    size_t depth;                        /* operations not completed */
    struct capture *capture;             /* held */
    struct stream *next_captured;        /* of the same capture */
    struct node_list tail;               /* what the next captured work comes after */
    struct race_stream {
        uint64_t epoch;           /* of the detector, in which the rest holds; 0: none */
        struct race_clock *clock; /* what its next work comes after; held */
        uint32_t track;
        uint64_t given; /* operations and notes */
    } race;
};

extern struct handle_table stream_table;

/* The stream behind a handle, or why there is none: 201 or 709 for the default streams of no context, 709 for a
 * destroyed one, 400 for what never was one, its context's sticky error. */
CUresult stream_named(struct thread *thread, CUstream handle, struct stream **stream);
CUresult stream_create(const struct thread *thread, CUstream *handle, unsigned flags, int priority);
CUresult stream_destroy(CUstream handle);
CUresult stream_create_in(struct context *context, struct green *green, CUstream *handle, unsigned flags, int priority);
struct stream *stream_new(struct context *context, struct green *green, unsigned flags, int priority, bool legacy);
/* Under scheduler_lock. */
void stream_drop(struct stream *stream);
static inline bool stream_is_blocking(const struct stream *stream) {
    return (stream->flags & CU_STREAM_NON_BLOCKING) == 0 && !stream->legacy;
}
/* When a context goes. Under scheduler_lock. */
void streams_context_discard(struct context *context);
/* When a thread ends. */
void streams_thread_discard(struct thread *thread);

/* ---- green.c: green contexts: parts of a primary context that have streams of their own ---- */

struct green {
    struct handle handle;
    struct context *context; /* its other handle */
    struct context *primary;
    uint64_t primary_id; /* of its life */
    uint64_t id;         /* never reused */
    CUdevSmResource part;
    struct stream *default_stream;
    struct operation *barrier; /* as a context's; scheduler_lock */
    struct race_context race;
};

/* 709 where it, or its primary context, is gone. */
CUresult green_usable(const struct green *green);

/* ---- events.c ---- */

struct event {
    struct handle handle;
    struct context *context;
    unsigned flags;
    struct event *previous, *following; /* of the context; scheduler_lock, as all below */
    struct operation *recorded;         /* the last record; held */
    struct capture *capture;            /* when that was captured; held */
    struct node_list tail;              /* what a wait for it comes after */
};

/* 709 for a destroyed event, 400 for what never was one. */
CUresult event_named(CUevent handle, struct event **event);
/* What it recorded last, held; NULL if nothing, or if that was captured. */
struct operation *event_recorded(struct event *event);
/* Takes over the reference to what records it now. */
void event_note(struct event *event, struct operation *record);
/* Everything that a context, or a green one within it, was given so far; or is given from now on. */
CUresult event_record_context(CUevent handle, struct context *context, const struct green *green);
CUresult event_wait_context(CUevent handle, struct context *context, struct green *green);
void events_context_discard(struct context *context);

/* ---- copies.c: checked work that is not yet submitted ---- */

CUresult copy_operation(struct operation_box to, struct operation_box from, size_t width, size_t height, size_t depth,
                        struct operation **operation);
CUresult copy_operation_3d(const CUDA_MEMCPY3D *c, struct operation **operation);
/* `width` in elements; *operation is NULL where there is nothing to fill. */
CUresult fill_operation(uint64_t address, size_t pitch, uint32_t value, unsigned element, size_t width, size_t height,
                        struct operation **operation);

/* ---- launch.c, modules.c ---- */

/* May a launch with these numbers of blocks and threads run in the context? */
CUresult launch_check(const void *function, const struct context *context, const unsigned grid[3],
                      const unsigned block[3]);
/* Takes over the reference to `kernel`, whatever the answer. */
CUresult launch_submit(struct stream *stream, struct operation *kernel);

/* When a context goes. */
void modules_context_discard(struct context *context);

/* Is it a function, or a kernel, that a stream of the context may run? */
CUresult module_function_check(const void *function, const struct context *context);

/* ---- race.c: the race detector ---- */

extern _Atomic(bool) races_running;
static inline bool races_are_on(void) {
    return UNLIKELY(atomic_load_explicit(&races_running, memory_order_relaxed));
}

/* What is being submitted, once its places are known. All under scheduler_lock, while the detector is on. */
void races_submitted(struct operation *operation, struct stream *stream, struct operation *const *after, size_t count);
void races_submitted_after_context(struct operation *operation, struct context *context, const struct green *green);
void races_submitted_before_context(struct operation *operation, struct context *context, struct green *green,
                                    const struct operation *earlier);
/* What a wait for all that the stream was given would prove; to be released. Under scheduler_lock. */
struct race_clock *races_stream_clock(const struct stream *stream);
void races_clock_release(struct race_clock *clock);

/* The host knows that what has this clock is complete. */
void races_observed(struct race_clock *clock);
static inline void races_operation_observed(const struct operation *operation) {
    if (races_are_on()) races_observed(operation->clock);
}

/* The driver may give these bytes to anybody: `freed`, which is complete, came after the uses it was to come after. */
void races_forget_released(uint64_t address, size_t bytes, const struct operation *freed);
static inline void races_released(uint64_t address, size_t bytes, const struct operation *freed) {
    if (races_are_on()) races_forget_released(address, bytes, freed);
}

/* Ends. Under scheduler_lock, but the second. */
void races_stream_gone(struct stream *stream);
void races_context_ended(const struct context *context);
void races_forget(struct race_context *race);

#pragma GCC visibility pop

#endif
