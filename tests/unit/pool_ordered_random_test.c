/* SPDX-License-Identifier: MIT
 *
 * Random operations in stream order against a judge that knows of every byte after which stream's work it was freed:
 * nobody but that stream may be given it, and the driver not have it back, before a mark that was recorded on the
 * stream later has passed, or a fence, or the device was waited for. The pool's invariants every few operations.
 */
#include "pool/internal.h"

#include "pool_fixture.h"

#define STREAMS 6   /* the legacy and the per-thread default stream, and four that end and come back */
#define NOBODY 1    /* freed by cudaFree: no stream may have it */
#define EVERYBODY 2 /* of plain memory: no stream is safe */
#define LIVE_MOST 300
#define GHOSTS_MOST 8192
#define MARKS_MOST 65536
#define LITTLE (48 * MIB_BYTES)
#define MUCH (4096 * MIB_BYTES)

struct range {
    uint64_t begin, end;
};

static struct judge {
    struct fixture f;
    struct device_ops real;
    uint64_t random;
    uint64_t ids[STREAMS], last_id;
    struct {
        struct range range;
        bool plain;
    } live[LIVE_MOST];
    size_t live_count;
    struct ghost { /* free memory, and after what */
        struct range range;
        uint64_t stream, recorded;
    } ghosts[GHOSTS_MOST];
    size_t ghost_count;
    uint64_t marks[MARKS_MOST]; /* by number: the stream, 0: a fence */
    unsigned long crossed, own, released, ended, captures;
    bool capturing;
} judge;

static uint64_t below(uint64_t bound) {
    judge.random ^= judge.random << 13;
    judge.random ^= judge.random >> 7;
    judge.random ^= judge.random << 17;
    return judge.random % bound;
}

static struct device_stream stream_at(size_t i) {
    return i < 2 ? (struct device_stream){(void *)(i + 1), false} : STREAM(i);
}

static size_t place_of(struct device_stream stream) {
    const uintptr_t handle = (uintptr_t)stream.handle;
    return handle <= 2 ? handle - 1 : handle / 0x100;
}

/* ---- the judge ---- */

static bool is_proved(const struct ghost *ghost) {
    for (uint64_t mark = ghost->recorded + 1; mark <= judge.f.device.passed; mark++)
        if (judge.marks[mark] == 0 || judge.marks[mark] == ghost->stream) return true;
    return false;
}

/* `recorded`: what was when the call began that freed it. */
static void add_ghost(struct range range, uint64_t stream, uint64_t recorded) {
    assert_true(judge.ghost_count < GHOSTS_MOST);
    judge.ghosts[judge.ghost_count++] = (struct ghost){range, stream, recorded};
}

/* Somebody is given the range. */
static void take(struct range range, uint64_t stream) {
    for (size_t i = 0; i < judge.ghost_count;) {
        struct ghost *ghost = &judge.ghosts[i];
        const struct range old = ghost->range;
        if (old.end <= range.begin || old.begin >= range.end) {
            i++;
            continue;
        }
        if (ghost->stream == stream) {
            judge.own++;
        } else {
            if (!is_proved(ghost))
                fail_msg("[%#llx, %#llx) is given to %llu before %llu has done with it",
                         (unsigned long long)range.begin, (unsigned long long)range.end, (unsigned long long)stream,
                         (unsigned long long)ghost->stream);
            judge.crossed++;
        }
        const struct ghost rest = {{range.end, old.end}, ghost->stream, ghost->recorded};
        ghost->range.end = range.begin > old.begin ? range.begin : old.begin;
        const bool empty = ghost->range.end == old.begin;
        if (rest.range.begin < rest.range.end) {
            assert_true(judge.ghost_count < GHOSTS_MOST);
            judge.ghosts[judge.ghost_count++] = rest;
        }
        if (empty)
            judge.ghosts[i] = judge.ghosts[--judge.ghost_count];
        else
            i++;
    }
}

/* ---- what the device does ---- */

static int note_segment(void *self, const struct segment_source *source, struct device_stream stream, size_t bytes,
                        uint64_t *address) {
    const int code = judge.real.segment_alloc(self, source, stream, bytes, address);
    if (code == DEVICE_OK && source->kind == SEGMENT_ASYNC)
        add_ghost((struct range){*address, *address + bytes}, judge.ids[place_of(stream)], judge.f.device.recorded);
    return code;
}

static int note_release(void *self, const struct segment_source *source, uint64_t address, size_t bytes) {
    take((struct range){address, address + bytes}, EVERYBODY);
    judge.released++;
    return judge.real.segment_release(self, source, address, bytes);
}

static void note_mark(int code, uint64_t stream) {
    assert_true(judge.f.device.recorded < MARKS_MOST);
    if (code == DEVICE_OK) judge.marks[judge.f.device.recorded] = stream;
}

static int note_fence(void *self, struct device_fence **fence) {
    const int code = judge.real.fence_record(self, fence);
    note_mark(code, 0);
    return code;
}

static int note_stream_mark(void *self, struct device_context context, struct device_stream stream,
                            struct device_fence **fence) {
    const int code = judge.real.fence_record_stream(self, context, stream, fence);
    note_mark(code, judge.ids[place_of(stream)]);
    return code;
}

static int note_wait(void *self, struct device_context context) {
    const int code = judge.real.context_synchronize(self, context);
    if (code == DEVICE_OK) judge.ghost_count = 0;
    return code;
}

static int note_wait_for_all(void *self) {
    return note_wait(self, (struct device_context){FAKE_PRIMARY(0), 0});
}

static int identify(void *self, struct device_stream stream, struct device_stream_identity *identity) {
    const int code = judge.real.stream_identify(self, stream, identity);
    identity->id = judge.ids[place_of(stream)];
    return code;
}

/* ---- steps ---- */

static size_t random_size(void) {
    switch (below(8)) {
    case 0:
        return 1 + below(3 * MIB_BYTES);
    case 1:
    case 2:
        return 1 + below(256 * KIB);
    default:
        return 512 * (1 + below(64));
    }
}

static void step_alloc(void) {
    const size_t i = below(8) ? below(STREAMS / 2) : below(STREAMS);
    const bool plain = below(4) == 0;
    const size_t bytes = random_size();
    uint64_t address = 0;
    if (judge.live_count == LIVE_MOST) return;
    const int code = plain ? pool_alloc(judge.f.pool, bytes, POOL_DOOR_DRIVER, &address)
                           : pool_alloc_async(judge.f.pool, bytes, stream_at(i), POOL_DOOR_DRIVER, &address);
    if (code == DEVICE_OUT_OF_MEMORY || (judge.capturing && code == POOL_PASS)) return;
    assert_int_equal(code, 0);
    /* What does not pay to be split off goes with the block. */
    const struct pool *pool = registry_pool(&judge.f.pool->registry, address);
    const struct range range = {address, address + live_table_find(&pool->table, address)->size};
    for (size_t k = 0; k < judge.live_count; k++)
        assert_true(judge.live[k].range.end <= range.begin || judge.live[k].range.begin >= range.end);
    take(range, plain ? EVERYBODY : judge.ids[i]);
    judge.live[judge.live_count].range = range;
    judge.live[judge.live_count++].plain = plain;
}

static void step_free(void) {
    if (!judge.live_count) return;
    const size_t at = below(judge.live_count);
    const size_t i = STREAMS - 1 - (below(8) ? below(STREAMS / 2) : below(STREAMS)); /* mostly not where it came from */
    const struct range range = judge.live[at].range;
    const uint64_t recorded = judge.f.device.recorded;
    if (below(12)) {
        must_free_on(&judge.f, stream_at(i), range.begin);
        add_ghost(range, judge.ids[i], recorded);
    } else {
        const unsigned waits = judge.f.device.synchronizes;
        must_free(&judge.f, range.begin);
        if (waits == judge.f.device.synchronizes) add_ghost(range, NOBODY, recorded);
    }
    judge.live[at] = judge.live[--judge.live_count];
}

static void step_end_stream(void) {
    const size_t i = 2 + below(STREAMS - 2);
    pool_stream_end(judge.f.pool, stream_at(i).handle);
    judge.ids[i] = ++judge.last_id; /* the handle comes back at once */
    judge.ended++;
}

static void step_capture(void) {
    if (judge.capturing)
        pool_capture_end(judge.f.pool);
    else
        pool_capture_begin(judge.f.pool);
    judge.capturing = !judge.capturing;
    judge.captures++;
}

static void step(void) {
    struct fake_device *device = &judge.f.device;
    switch (below(64)) {
    case 0:
        step_end_stream();
        return;
    case 1:
        if (judge.capturing || below(4) == 0) step_capture();
        return;
    case 2:
        if (!judge.capturing && below(4) == 0) pool_trim(judge.f.pool, 0, below(16 * MIB_BYTES));
        return;
    case 3:
        device->record_fails_with = below(4) ? 0 : 2;
        return;
    case 4:
    case 5:
    case 6:
    case 7:
        device->passed += below(device->recorded - device->passed + 1);
        return;
    default:
        if (below(LIVE_MOST) < judge.live_count)
            step_free();
        else
            step_alloc();
    }
}

/* `memory`: little, so that much goes back and all is merged at once, or so much that small blocks are kept whole. */
static void run(uint64_t seed, bool free_event, uint64_t memory) {
    struct pool_options options = fixture_options();
    options.free_event = free_event;
    options.segment_bytes = 2 * MIB_BYTES;
    judge = (struct judge){.random = seed * UINT64_C(0x9E3779B97F4A7C15) + 1, .last_id = 100};
    for (size_t i = 0; i < STREAMS; i++) judge.ids[i] = ++judge.last_id;
    fixture_begin(&judge.f, memory, options);
    struct device_ops *ops = &judge.f.device.ops;
    judge.real = *ops;
    judge.f.device.passes_at_once = false;
    ops->segment_alloc = note_segment;
    ops->segment_release = note_release;
    ops->fence_record = note_fence;
    ops->fence_record_stream = note_stream_mark;
    ops->context_synchronize = note_wait;
    ops->current_synchronize = note_wait_for_all;
    ops->synchronize_all = note_wait_for_all;
    ops->stream_identify = identify;
    for (unsigned i = 0; i < 12000; i++) {
        step();
        if (i % 8 == 0) assert_pool_whole(&judge.f);
    }
    if (judge.capturing) step_capture();
    print_message("# seed %llu: %lu parts crossed streams, %lu did not; %lu segments went back, %lu streams ended\n",
                  (unsigned long long)seed, judge.crossed, judge.own, judge.released, judge.ended);
    assert_true(judge.crossed > 40 && judge.own > 100 && judge.released > 10 && judge.ended > 100);
    *ops = judge.real;
    fixture_end(&judge.f);
}

static void no_block_is_given_out_before_its_stream_has_done_with_it(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) run(seed, false, seed % 2 ? LITTLE : MUCH);
}

static void nor_when_cudafree_does_not_wait(void **state) {
    (void)state;
    for (uint64_t seed = 11; seed <= 14; seed++) run(seed, true, seed % 2 ? LITTLE : MUCH);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(no_block_is_given_out_before_its_stream_has_done_with_it),
    cmocka_unit_test(nor_when_cudafree_does_not_wait),
};
TESTING_MAIN(tests)
