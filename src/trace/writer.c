/* SPDX-License-Identifier: MIT
 *
 * The threads' blocks: filled without a lock, written out under one.
 *
 * A block belongs to its thread until that ends; another thread touches it once, when the process ends: it reads what
 * lies below `next`, which is stored after the record is whole.
 */
#include "trace/trace.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "config/config.h"
#include "config/guard.h"
#include "trace/counter.h"
#include "trace/file.h"

enum {
    BLOCK_WORDS = POOLCUDA_TRACE_BLOCK_BYTES / 8,
    HEAD_WORDS = sizeof(struct poolcuda_trace_block) / 8,
    RECORDS_MOST_A_TIME = 3, /* after the one that read it: where the calls pause, so many are early */
    /* with what a record may need before it */
    RECORD_WORDS_MOST = (sizeof(struct poolcuda_trace_place) + sizeof(struct poolcuda_trace_call)) / 8
};

struct block {
    struct trace_block filling;
    uint64_t life;           /* of the process that it belongs to */
    bool written;            /* the process ended with it: what has come since is lost */
    struct block *following; /* all_blocks, or spare_blocks */
    union {
        struct poolcuda_trace_block head;
        uint64_t words[BLOCK_WORDS];
    };
};

bool trace_flag;
enum poolcuda_trace_counter trace_counter;

struct trace_latest trace_latest;

_Thread_local struct trace_block *trace_own __attribute__((tls_model("initial-exec")));

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows, and the file */
static struct block *all_blocks, *spare_blocks;
static bool created, finished;
static uint64_t lost;
static _Atomic uint64_t life = 1; /* another one in a forked child */

static pthread_key_t ends;
static bool ends_known;

static struct block *own_block(void) {
    return (struct block *)(void *)trace_own;
}

/* ---- records ---- */

static void put_long(struct trace_block *block, const void *record, size_t words) {
    uint64_t *at = atomic_load_explicit(&block->next, memory_order_relaxed);
    memcpy(at, record, words * sizeof *at);
    atomic_store_explicit(&block->next, at + words, memory_order_release);
}

static struct poolcuda_trace_where where_of(const struct trace_call *call) {
    return (struct poolcuda_trace_where){.device = (int32_t)call->where,
                                         .memory = (uint8_t)(call->where >> 32),
                                         .stream_kind = (uint8_t)(call->where >> 40)};
}

static void put_place(struct trace_block *block, const struct trace_call *call, unsigned number) {
    const struct poolcuda_trace_place record = {
        .word = (uint64_t)POOLCUDA_TRACE_PLACE << POOLCUDA_TRACE_KIND_SHIFT | (uint64_t)number
                                                                                  << POOLCUDA_TRACE_PLACE_SHIFT,
        .first = call->number,
        .stream = call->stream,
        .where = where_of(call),
    };
    block->places[number] = (struct trace_place){call->number, call->stream, call->where};
    put_long(block, &record, sizeof record / 8);
}

static void put_call(struct trace_block *block, const struct trace_call *call, uint64_t time) {
    const struct poolcuda_trace_where where = where_of(call);
    const struct poolcuda_trace_call record = {
        .word = time | (uint64_t)POOLCUDA_TRACE_CALL << POOLCUDA_TRACE_KIND_SHIFT |
                (uint64_t)call->runtime_door << POOLCUDA_TRACE_DOOR_SHIFT,
        .address = call->address,
        .size = call->size,
        .number = call->number,
        .stream = call->stream,
        .device = (int16_t)where.device,
        .code = call->code,
        .operation = call->operation,
        .served = call->served,
        .memory = where.memory,
        .stream_kind = where.stream_kind,
    };
    put_long(block, &record, sizeof record / 8);
}

/* ---- times ---- */

static void be_latest(struct trace_block *block) {
    if (!trace_is_latest(block)) atomic_store_explicit(&trace_latest.block, block, memory_order_relaxed);
}

/* More and more records share a time while they come within a microsecond of one another. */
uint64_t trace_when_anew(struct trace_block *block) {
    const uint64_t now = trace_time();
    const bool close = now - block->time < (block->run + 1) * counter_microsecond() && trace_is_latest(block);
    block->run = !close ? 0 : block->run < RECORDS_MOST_A_TIME ? 2 * block->run + 1 : RECORDS_MOST_A_TIME;
    block->left = block->run;
    block->time = now;
    if (close)
        block->tick = counter_tick();
    else
        be_latest(block);
    return now;
}

/* ---- blocks. Under the lock, inside a guard ---- */

static size_t words_in(struct block *block) {
    return (size_t)(atomic_load_explicit(&block->filling.next, memory_order_acquire) - block->words);
}

static void stop(void) {
    __atomic_store_n(&trace_flag, false, __ATOMIC_RELAXED);
}

static uint64_t records_in(const struct block *block, size_t words) {
    static const uint8_t lengths[8] = {[POOLCUDA_TRACE_HIT] = 2,
                                       [POOLCUDA_TRACE_FREE] = 1,
                                       [POOLCUDA_TRACE_PLACE] = sizeof(struct poolcuda_trace_place) / 8,
                                       [POOLCUDA_TRACE_CALL] = sizeof(struct poolcuda_trace_call) / 8};
    uint64_t count = 0;
    for (size_t at = HEAD_WORDS; at < words;) {
        const unsigned kind = block->words[at] >> POOLCUDA_TRACE_KIND_SHIFT & 7;
        count += kind != POOLCUDA_TRACE_PLACE;
        at += lengths[kind];
    }
    return count;
}

/* The head is the lock's, the rest the thread's. */
static void write_out(struct block *block) {
    const size_t words = words_in(block);
    if (words <= HEAD_WORDS || !trace_is_on()) return;
    block->head.bytes = (uint32_t)(words * sizeof block->words[0]);
    block->head.lost = lost;
    block->head.base = block->filling.base;
    block->head.end = file_moment(trace_counter);
    switch (file_append(&block->head)) {
    case FILE_WRITTEN:
        return;
    case FILE_MISSED:
        lost += records_in(block, words);
        return;
    case FILE_FAILED:
        stop();
        return;
    }
}

/* Empty, for records from `time` on. By its own thread. */
static void begin(struct block *block, uint64_t time) {
    struct trace_block *filling = &block->filling;
    for (unsigned i = 0; i < POOLCUDA_TRACE_PLACES; i++)
        filling->places[i] = (struct trace_place){.stream = UINT64_MAX}; /* nobody's */
    filling->base = time;
    /* After the process's end each record is written by itself. */
    filling->last = finished ? block->words : block->words + BLOCK_WORDS - RECORD_WORDS_MOST;
    atomic_store_explicit(&filling->next, block->words + HEAD_WORDS, memory_order_release);
    block->written = false;
}

static void enter(struct guard *guard) {
    guard_enter(guard);
    pthread_mutex_lock(&lock);
}

static void leave(const struct guard *guard) {
    pthread_mutex_unlock(&lock);
    guard_leave(guard);
}

/* ---- threads ---- */

static struct block *take_block(uint64_t time) {
    struct block *block = spare_blocks;
    if (block) {
        spare_blocks = block->following;
    } else {
        block = mmap(NULL, sizeof *block, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block == MAP_FAILED) return NULL;
    }
    block->following = all_blocks;
    all_blocks = block;
    block->life = atomic_load(&life);
    block->head.magic = POOLCUDA_TRACE_BLOCK_MAGIC;
    block->head.thread = (uint32_t)gettid();
    begin(block, time);
    return block;
}

static void thread_ends(void *arg) {
    struct block *block = arg;
    struct guard guard;
    enter(&guard);
    if (block->life == atomic_load(&life)) {
        if (!block->written) write_out(block);
        struct block **link = &all_blocks;
        while (*link != block) link = &(*link)->following;
        *link = block->following;
        block->following = spare_blocks;
        spare_blocks = block;
    }
    trace_own = NULL;
    leave(&guard);
}

/* The thread's block, with room for what comes at `time`; NULL when there is none. */
static struct block *make_room(uint64_t time) {
    struct block *block = own_block();
    struct guard guard;
    enter(&guard);
    if (block && block->life != atomic_load(&life)) block = NULL; /* it was the parent's */
    if (!created && trace_is_on()) {
        created = true;
        if (file_create(trace_counter, COUNTER_SHIFT) == FILE_FAILED) stop();
    }
    const bool is_new = !block;
    if (is_new) {
        block = take_block(time);
    } else {
        if (!block->written) write_out(block);
        begin(block, time);
    }
    if (!block) lost++;
    leave(&guard);
    if (is_new) trace_interrupt();
    /* Outside the lock: it may call the program's malloc. */
    if (is_new && block && ends_known) {
        const int error = errno;
        pthread_setspecific(ends, block);
        errno = error;
    }
    trace_own = block ? &block->filling : NULL;
    return block;
}

static void write_alone(struct block *block) {
    struct guard guard;
    enter(&guard);
    write_out(block);
    begin(block, block->filling.base);
    leave(&guard);
}

static bool put_short(struct trace_block *block, const struct trace_call *call) {
    const unsigned place = trace_place_number(call->number, call->stream);
    if (call->served != POOLCUDA_TRACE_BY_HIT || call->code != 0 || block->places[place].where != call->where)
        return false;
    return call->operation == POOLCUDA_TRACE_ALLOC
               ? trace_put_hit(block, call->time, call->address, call->size, call->number, call->stream,
                               call->runtime_door)
               : trace_put_free(block, call->time, call->number, call->stream, call->runtime_door);
}

void trace_record(const struct trace_call *call) {
    struct trace_block *block = trace_own;
    if (block) {
        block->left = 0; /* what follows is not before it */
        be_latest(block);
        if (put_short(block, call)) return;
    }
    uint64_t time = block ? (call->time - block->base) >> COUNTER_SHIFT : 0;
    if (!block || atomic_load_explicit(&block->next, memory_order_relaxed) >= block->last ||
        time >> POOLCUDA_TRACE_TIME_BITS) {
        if (!make_room(call->time)) return;
        block = trace_own;
        time = 0;
    }
    /* Room is there; what is missing may be the place. */
    uint64_t *const last = block->last;
    block->last = own_block()->words + BLOCK_WORDS;
    const bool by_pool = call->served == POOLCUDA_TRACE_BY_HIT && call->code == 0 && call->size >> 32 == 0;
    if (by_pool) put_place(block, call, trace_place_number(call->number, call->stream));
    if (!by_pool || !put_short(block, call)) put_call(block, call, time);
    block->last = last;
    if (last == own_block()->words) write_alone(own_block());
}

/* ---- the process ---- */

void trace_start(void) {
    if (!config_get()->trace) return;
    trace_counter = counter_choose();
    if (!ends_known) ends_known = pthread_key_create(&ends, thread_ends) == 0;
    __atomic_store_n(&trace_flag, true, __ATOMIC_RELEASE);
}

void trace_finish(void) {
    if (!trace_is_on()) return;
    struct guard guard;
    enter(&guard);
    finished = true;
    for (struct block *block = all_blocks; block; block = block->following) {
        if (!block->written) write_out(block);
        block->written = true;
    }
    if (created && trace_is_on()) {
        struct poolcuda_trace_block last = {
            .magic = POOLCUDA_TRACE_BLOCK_MAGIC,
            .bytes = sizeof last,
            .thread = (uint32_t)gettid(),
            .flags = POOLCUDA_TRACE_LAST,
            .base = trace_time(),
            .end = file_moment(trace_counter),
            .lost = lost,
        };
        if (file_append(&last) == FILE_FAILED) stop();
    }
    struct block *block = own_block();
    if (block && block->life == atomic_load(&life)) begin(block, trace_time());
    leave(&guard);
}

void trace_forget_in_child(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    /* A thread of the child that still holds a block of the parent's finds it full, and then not its own. */
    for (struct block *block = all_blocks; block; block = block->following) block->filling.last = block->words;
    atomic_fetch_add(&life, 1);
    all_blocks = spare_blocks = NULL;
    trace_own = NULL;
    created = finished = false;
    lost = 0;
    stop();
    file_forget();
}
