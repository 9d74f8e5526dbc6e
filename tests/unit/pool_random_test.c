/* SPDX-License-Identifier: MIT
 *
 * Random operations against a model that is too simple to be wrong: a sorted list of the live blocks. Checked after
 * each: no two live blocks overlap, every block lies in memory that the device gave, the sums agree; the pool's
 * invariants every few operations.
 */
#include "pool_fixture.h"

#include <stdlib.h>

#define LIVE_MOST 2000

struct model {
    struct fixture f;
    uint64_t random;
    struct live {
        uint64_t address;
        size_t requested;
        int ordinal;
    } live[LIVE_MOST]; /* sorted by address */
    size_t count;
    uint64_t requested, most; /* most: what a device may give */
    unsigned long allocs, failures, resets, captures, bad_frees;
    unsigned long capturing;
    bool preallocated;
};

static uint64_t next(struct model *m) {
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return m->random;
}

static size_t below(struct model *m, size_t bound) {
    return (size_t)(next(m) % bound);
}

/* Mostly small, some large, now and then odd. */
static size_t random_size(struct model *m) {
    switch (below(m, 8)) {
    case 0:
        return 1 + below(m, 64 * KIB);
    case 1:
        return 1 + below(m, 4 * MIB_BYTES);
    case 2:
        return below(m, 40) ? 1 + below(m, 8 * MIB_BYTES) : 1 + below(m, 60 * MIB_BYTES);
    case 3:
        return 512 * (1 + below(m, 16));
    default:
        return 1 + below(m, 4 * KIB);
    }
}

static size_t model_at(const struct model *m, uint64_t address) {
    size_t low = 0, high = m->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (m->live[middle].address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool device_gave(struct model *m, uint64_t address, size_t size, int ordinal) {
    for (size_t i = 0; i < m->f.device.range_count; i++) {
        const struct fake_range *range = &m->f.device.ranges[i];
        if (address >= range->address && address + size <= range->address + range->size)
            return range->ordinal == ordinal;
    }
    return false;
}

static void model_add(struct model *m, uint64_t address, size_t requested, int ordinal) {
    size_t rounded = (requested + 511) / 512 * 512;
    size_t at = model_at(m, address);
    if (at > 0) assert_true(m->live[at - 1].address + (m->live[at - 1].requested + 511) / 512 * 512 <= address);
    if (at < m->count) assert_true(address + rounded <= m->live[at].address);
    assert_true(device_gave(m, address, rounded, ordinal));
    memmove(&m->live[at + 1], &m->live[at], (m->count - at) * sizeof m->live[0]);
    m->live[at] = (struct live){address, requested, ordinal};
    m->count++;
    m->requested += requested;
}

static void model_remove(struct model *m, size_t at) {
    m->requested -= m->live[at].requested;
    memmove(&m->live[at], &m->live[at + 1], (m->count - at - 1) * sizeof m->live[0]);
    m->count--;
}

static void step_alloc(struct model *m) {
    if (m->count == LIVE_MOST) return;
    int ordinal = (int)below(m, FAKE_DEVICES);
    fake_set_current(FAKE_PRIMARY(ordinal), ordinal);
    size_t size = random_size(m);
    uint64_t address = 0;
    int code = pool_alloc(m->f.pool, size, POOL_DOOR_DRIVER, &address);
    if (m->capturing) {
        assert_int_equal(code, POOL_PASS);
    } else if (code == DEVICE_OUT_OF_MEMORY) {
        m->failures++;
        struct pool_totals totals = totals_of(&m->f, ordinal);
        if (!m->preallocated) assert_int_equal(totals.releasable, 0); /* nothing was left to give back */
        assert_true(totals.reserved + size > m->most / 2);
    } else {
        assert_int_equal(code, 0);
        m->allocs++;
        model_add(m, address, size, ordinal);
    }
}

static void step_free(struct model *m) {
    if (!m->count) return;
    size_t at = below(m, m->count);
    uint64_t address = m->live[at].address;
    int code = below(m, 4) || m->capturing
                   ? pool_free(m->f.pool, address, POOL_DOOR_RUNTIME)
                   : pool_free_async(m->f.pool, address, (struct device_stream){0}, POOL_DOOR_DRIVER);
    assert_int_equal(code, 0);
    model_remove(m, at);
}

static void step_wrong_free(struct model *m) {
    if (!m->count) return;
    uint64_t address = m->live[below(m, m->count)].address + 1 + below(m, 4 * MIB_BYTES);
    size_t at = model_at(m, address);
    if (at < m->count && m->live[at].address == address) return;
    int code = pool_free(m->f.pool, address, POOL_DOOR_DRIVER);
    assert_true(code == POOL_PASS || code == DEVICE_INVALID_VALUE);
    m->bad_frees += code == DEVICE_INVALID_VALUE;
}

static void step_find(struct model *m) {
    if (!m->count) return;
    size_t at = below(m, m->count);
    struct pool_block_info info;
    assert_int_equal(pool_find(m->f.pool, m->live[at].address + below(m, m->live[at].requested), &info), 0);
    assert_int_equal(info.base, m->live[at].address);
    assert_int_equal(info.requested, m->live[at].requested);
}

static void step_reset(struct model *m) {
    int ordinal = (int)below(m, FAKE_DEVICES);
    pool_context_close(m->f.pool, ordinal, NULL);
    fake_reset(&m->f.device, ordinal, false);
    pool_context_settle(m->f.pool, ordinal, NULL);
    m->f.device.alive[ordinal] = true;
    m->resets++;
    for (size_t i = m->count; i-- > 0;)
        if (m->live[i].ordinal == ordinal) model_remove(m, i);
}

static void step_capture(struct model *m) {
    if (m->capturing) {
        pool_capture_end(m->f.pool);
        m->capturing = 0;
    } else {
        pool_capture_begin(m->f.pool);
        m->capturing = 1;
        m->captures++;
    }
}

static void run(struct model *m, uint64_t seed, unsigned long operations, uint64_t memory,
                struct pool_options options) {
    *m = (struct model){.random = seed * UINT64_C(0x9E3779B97F4A7C15) + 1};
    m->preallocated = options.prealloc_bytes > 0;
    m->most = options.limit_bytes < memory ? options.limit_bytes : memory;
    fixture_begin(&m->f, memory, options);
    for (unsigned long i = 0; i < operations; i++) {
        size_t kind = below(m, 10000);
        /* Waves: more allocations than frees for a while, then the other way. */
        size_t lean = i / 4096 % 2 ? 4200 : 5600;
        if (kind < 20)
            step_wrong_free(m);
        else if (kind < 40)
            step_find(m);
        else if (kind < 41)
            step_reset(m);
        else if (kind < 50)
            pool_trim(m->f.pool, (int)below(m, FAKE_DEVICES), below(m, 64) * MIB_BYTES);
        else if (kind < 52 || (m->capturing && kind < 600))
            step_capture(m);
        else if (kind < lean)
            step_alloc(m);
        else
            step_free(m);
        assert_int_equal(totals_of(&m->f, -1).requested, m->requested);
        assert_int_equal(totals_of(&m->f, -1).blocks_live, m->count);
        if (i % 2 == 0) assert_pool_whole(&m->f);
    }
    while (m->capturing) step_capture(m);
    while (m->count) step_free(m);
    assert_int_equal(totals_of(&m->f, -1).live, 0);
    fixture_end(&m->f);
}

static struct model model;

static void on_a_large_device(void **state) {
    (void)state;
    run(&model, 1, 150000, 64 * 1024 * (uint64_t)MIB_BYTES, fixture_options());
    assert_int_equal(model.failures, 0);
    assert_true(model.resets > 0 && model.captures > 0 && model.bad_frees > 0);
}

static void on_a_full_device(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.headroom_bytes = 8 * MIB_BYTES;
    run(&model, 2, 150000, 160 * (uint64_t)MIB_BYTES, options);
    assert_true(model.failures > 100);
}

static void with_bounds_on_everything(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.limit_bytes = 192 * MIB_BYTES;
    options.trim_bytes = 24 * MIB_BYTES;
    options.max_split_bytes = 3 * MIB_BYTES;
    options.segment_bytes = 2 * MIB_BYTES;
    run(&model, 3, 100000, 1024 * (uint64_t)MIB_BYTES, options);
    assert_true(model.f.device.most_in_use[0] <=
                192 * MIB_BYTES + 16 * 512); /* what asks the driver in a capture is not ours to limit */
    assert_true(model.failures > 0);
}

/* What was reserved ahead serves some, and runs out for others; it is given back where memory runs out. */
static void with_memory_reserved_ahead(void **state) {
    (void)state;
    struct pool_options options = fixture_options();
    options.prealloc_bytes = 100 * MIB_BYTES;
    options.fixed = (struct config_fixed){3, {{512, 100}, {3 * KIB, 200}, {4 * KIB, 5}}};
    for (unsigned event = 0; event < 2; event++) {
        options.free_event = event;
        run(&model, 4 + event, 20000, 256 * (uint64_t)MIB_BYTES, options);
        assert_true(model.failures > 0);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(on_a_large_device),
    cmocka_unit_test(on_a_full_device),
    cmocka_unit_test(with_bounds_on_everything),
    cmocka_unit_test(with_memory_reserved_ahead),
};
TESTING_MAIN(tests)
