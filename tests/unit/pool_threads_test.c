/* SPDX-License-Identifier: MIT
 *
 * Many threads on one pool: stamps show that no block is given to two at once; resets, trims and checks run beside
 * them; a thread inside the driver stops nobody's hits.
 */
#include "pool_fixture.h"
#include "pool_insides.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "pool/internal.h"

#define THREADS 4
#define HELD 64

/* Who owns each unit of the address range that the fake device gives out: two owners at once are a fault of the pool.
 */
#define OWNED_UNITS ((size_t)4 << 20)
static _Atomic unsigned char *owners;
static const uint64_t owned_base = UINT64_C(0x700000000000);

static void own(uint64_t address, size_t size, unsigned char from, unsigned char to) {
    for (size_t unit = (address - owned_base) / 512; unit < (address - owned_base + size + 511) / 512; unit++) {
        assert_true(unit < OWNED_UNITS);
        unsigned char before = atomic_exchange(&owners[unit], to);
        assert_int_equal(before, from);
    }
}

struct worker {
    struct fixture *f;
    atomic_bool *stop;
    pthread_t thread;
    unsigned rounds;
    unsigned char number;
    bool resets; /* blocks may vanish: a free may pass */
};

static void *work(void *arg) {
    struct worker *w = arg;
    uint64_t held[HELD] = {0};
    size_t sizes[HELD] = {0};
    uint64_t random = w->number * UINT64_C(0x9E3779B97F4A7C15);
    fake_set_current(FAKE_PRIMARY(0), 0);
    for (unsigned i = 0; i < w->rounds; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        unsigned at = (unsigned)(random >> 40) % HELD;
        if (held[at]) {
            if (!w->resets) own(held[at], sizes[at], w->number, 0);
            int code = pool_free(w->f->pool, held[at], POOL_DOOR_DRIVER);
            if (w->resets)
                assert_true(code == 0 || code == POOL_PASS);
            else
                assert_int_equal(code, 0);
            held[at] = 0;
        } else {
            sizes[at] = 1 + (size_t)(random >> 33) % (random % 16 ? 20000 : 3000000);
            uint64_t address = 0;
            int code = pool_alloc(w->f->pool, sizes[at], POOL_DOOR_DRIVER, &address);
            if (w->resets && code) continue;
            assert_int_equal(code, 0);
            if (!w->resets) own(address, sizes[at], 0, w->number);
            held[at] = address;
        }
    }
    for (unsigned at = 0; at < HELD; at++) {
        if (!held[at]) continue;
        if (!w->resets) own(held[at], sizes[at], w->number, 0);
        pool_free(w->f->pool, held[at], POOL_DOOR_DRIVER);
    }
    return NULL;
}

static void *watch(void *arg) {
    struct worker *w = arg;
    while (!atomic_load(w->stop)) {
        const char *broken = pool_check(w->f->pool);
        if (broken) {
            fprintf(stderr, "%s\n", broken);
            abort();
        }
        pool_trim(w->f->pool, 0, 8 * MIB_BYTES);
        usleep(500);
    }
    return NULL;
}

static void *reset(void *arg) {
    struct worker *w = arg;
    while (!atomic_load(w->stop)) {
        pool_context_close(w->f->pool, 0, NULL);
        fake_reset(&w->f->device, 0, false);
        pool_context_settle(w->f->pool, 0, NULL);
        pthread_mutex_lock(&w->f->device.lock);
        w->f->device.alive[0] = true;
        pthread_mutex_unlock(&w->f->device.lock);
        usleep(300);
    }
    return NULL;
}

static void run_threads(struct fixture *f, bool resets, unsigned rounds) {
    atomic_bool stop = false;
    struct worker workers[THREADS], watcher = {.f = f, .stop = &stop}, resetter = {.f = f, .stop = &stop};
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.f = f, .number = (unsigned char)(i + 1), .rounds = rounds, .resets = resets};
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    pthread_create(&watcher.thread, NULL, watch, &watcher);
    if (resets) pthread_create(&resetter.thread, NULL, reset, &resetter);
    for (unsigned i = 0; i < THREADS; i++) pthread_join(workers[i].thread, NULL);
    atomic_store(&stop, true);
    pthread_join(watcher.thread, NULL);
    if (resets) pthread_join(resetter.thread, NULL);
}

static void no_block_has_two_owners(void **state) {
    (void)state;
    struct fixture f;
    owners = calloc(OWNED_UNITS, 1);
    assert_non_null(owners);
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    must_free(&f, must_alloc(&f, 512)); /* the watcher finds a pool */
    run_threads(&f, false, 20000);
    assert_int_equal(totals_of(&f, 0).live, 0);
    fixture_end(&f);
    free((void *)owners);
}

static void resets_beside_allocations_lose_nothing(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    run_threads(&f, true, 8000);
    assert_pool_whole(&f);
    /* Releases of segments that a reset took are not faults of the device here; what was freed twice is. */
    assert_int_equal(f.device.bad_releases, 0);
    fixture_end(&f);
}

/* The hits of another thread, made while this one is inside the driver's allocation. */
struct beside {
    struct fixture *f;
    bool done;
};

static void *hit(void *arg) {
    struct beside *b = arg;
    fake_set_current(FAKE_PRIMARY(0), 0);
    for (int i = 0; i < 100; i++) must_free(b->f, must_alloc(b->f, 4096));
    return NULL;
}

static void hit_in_another_thread(void *arg) {
    struct beside *b = arg;
    if (b->done) return;
    b->done = true;
    pthread_t thread;
    pthread_create(&thread, NULL, hit, b);
    pthread_join(thread, NULL); /* never comes back if a lock is held across the driver's call */
}

static void hazard_42_hits_go_on_while_another_thread_is_in_the_driver(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    must_free(&f, must_alloc(&f, 4096));
    struct beside b = {.f = &f};
    f.device.during_arg = &b;
    f.device.during_alloc = hit_in_another_thread;
    must_alloc(&f, 100 * MIB_BYTES);
    assert_true(b.done);
    f.device.during_alloc = NULL;
    uint64_t a = must_alloc(&f, 8192);
    b.done = false;
    f.device.during_synchronize = hit_in_another_thread;
    must_free(&f, a);
    f.device.during_synchronize = NULL;
    assert_true(b.done);
    fixture_end(&f);
}

/* A second free of the same block while the first waits for the device. */
static void free_again(void *arg) {
    struct beside *b = arg;
    if (b->done) return;
    b->done = true;
    must_free(b->f, owned_base);
    assert_int_equal(must_alloc(b->f, 8192), owned_base + 4608); /* behind the neighbour */
}

static void of_two_frees_at_once_one_succeeds(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    assert_int_equal(must_alloc(&f, 4096), owned_base);
    must_alloc(&f, 512);
    struct beside b = {.f = &f};
    f.device.during_arg = &b;
    f.device.during_synchronize = free_again;
    assert_int_equal(pool_free(f.pool, owned_base, POOL_DOOR_DRIVER), DEVICE_INVALID_VALUE);
    f.device.during_synchronize = NULL;
    assert_true(b.done);
    fixture_end(&f);
}

/* A context is closed by another thread while this one is inside the driver: the close has to wait. */
struct closing {
    struct fixture *f;
    atomic_bool closed;
    pthread_t thread;
};

static void *close_context(void *arg) {
    struct closing *c = arg;
    pool_context_close(c->f->pool, 0, NULL);
    atomic_store(&c->closed, true);
    return NULL;
}

static void close_in_another_thread(void *arg) {
    struct closing *c = arg;
    c->f->device.during_alloc = NULL;
    pthread_create(&c->thread, NULL, close_context, c);
    usleep(20000);
    assert_false(atomic_load(&c->closed));
}

static void a_close_waits_for_who_is_in_the_driver(void **state) {
    (void)state;
    struct fixture f;
    uint64_t address;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    struct closing c = {.f = &f};
    f.device.during_arg = &c;
    f.device.during_alloc = close_in_another_thread;
    uint64_t a = must_alloc(&f, 4096);
    pthread_join(c.thread, NULL); /* never comes back if nobody wakes it */
    assert_true(atomic_load(&c.closed));
    assert_int_equal(pool_alloc(f.pool, 4096, POOL_DOOR_DRIVER, &address), POOL_PASS);
    pool_context_settle(f.pool, 0, NULL);
    must_free(&f, a);
    fixture_end(&f);
}

/* ---- cancellation ---- */

static void cancel_here(void *arg) {
    *(bool *)arg = true;
    pthread_cancel(pthread_self());
    pthread_testcancel(); /* as a driver's call may be one where a thread ends */
}

static void *allocate_and_end(void *fixture) {
    fake_set_current(FAKE_PRIMARY(0), 0);
    must_alloc(fixture, 4096);
    pthread_testcancel();
    return NULL;
}

static void a_thread_is_not_cancelled_inside_the_pool(void **state) {
    (void)state;
    struct fixture f;
    pthread_t thread;
    void *result = NULL;
    bool cancelled = false;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    f.device.during_alloc = cancel_here;
    f.device.during_arg = &cancelled;
    pthread_create(&thread, NULL, allocate_and_end, &f);
    pthread_join(thread, &result);
    f.device.during_alloc = NULL;
    assert_true(cancelled);
    assert_ptr_equal(result, PTHREAD_CANCELED); /* but after it */
    assert_int_equal(totals_of(&f, 0).live, 4096);
    pool_context_close(f.pool, 0, NULL); /* never comes back if the thread is still counted */
    pool_context_settle(f.pool, 0, NULL);
    fixture_end(&f);
}

/* A free in another thread: while the context is being reset only the outcome says what becomes of it. */
struct freeing {
    struct fixture *f;
    uint64_t block;
    int code;
    atomic_bool done;
};

static void cancel_once(void *arg) {
    if (!*(bool *)arg) cancel_here(arg);
}

static void *free_and_be_cancelled(void *arg) {
    struct freeing *w = arg;
    fake_set_current(FAKE_PRIMARY(0), 0);
    pool_free(w->f->pool, w->block, POOL_DOOR_DRIVER);
    atomic_store(&w->done, true);
    return NULL;
}

static void a_wait_that_its_thread_has_left_holds_no_capture_up(void **state) {
    (void)state;
    struct fixture f;
    pthread_t thread;
    struct timespec begin, end;
    void *result = NULL;
    bool cancelled = false;
    fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
    struct freeing w = {.f = &f, .block = must_alloc(&f, 4096)};
    f.device.during_synchronize = cancel_once;
    f.device.during_arg = &cancelled;
    pthread_create(&thread, NULL, free_and_be_cancelled, &w);
    pthread_join(thread, &result);
    assert_true(cancelled);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    assert_false(atomic_load(&w.done));
    for (struct pool *pool = atomic_load(&f.pool->pools); pool; pool = pool->next)
        assert_int_equal(waits_under_way(pool), 0);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    pool_capture_begin(f.pool);
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_true((end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000 < 90);
    pool_capture_end(f.pool);
    assert_int_equal(totals_of(&f, 0).live, 4096); /* as natively: the free was never done */
    must_free(&f, w.block);
    fixture_end(&f);
}

static void *free_in_reset(void *arg) {
    struct freeing *w = arg;
    fake_set_current(FAKE_PRIMARY(0), 0);
    w->code = pool_free(w->f->pool, w->block, POOL_DOOR_DRIVER);
    atomic_store(&w->done, true);
    return NULL;
}

static void a_free_waits_for_the_outcome_of_a_reset(void **state) {
    (void)state;
    for (int gone = 0; gone < 2; gone++) {
        struct fixture f;
        pthread_t thread;
        fixture_begin(&f, 1024 * MIB_BYTES, fixture_options());
        struct freeing w = {.f = &f, .block = must_alloc(&f, 4096)};
        pool_context_close(f.pool, 0, NULL);
        pthread_create(&thread, NULL, free_in_reset, &w);
        usleep(20000);
        assert_false(atomic_load(&w.done));
        if (gone) fake_reset(&f.device, 0, false);
        pool_context_settle(f.pool, 0, NULL);
        pthread_join(thread, NULL); /* never comes back if nobody wakes it */
        assert_int_equal(w.code, gone ? POOL_PASS : 0);
        f.device.alive[0] = true;
        fixture_end(&f);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(no_block_has_two_owners),
    cmocka_unit_test(resets_beside_allocations_lose_nothing),
    cmocka_unit_test(hazard_42_hits_go_on_while_another_thread_is_in_the_driver),
    cmocka_unit_test(of_two_frees_at_once_one_succeeds),
    cmocka_unit_test(a_close_waits_for_who_is_in_the_driver),
    cmocka_unit_test(a_thread_is_not_cancelled_inside_the_pool),
    cmocka_unit_test(a_wait_that_its_thread_has_left_holds_no_capture_up),
    cmocka_unit_test(a_free_waits_for_the_outcome_of_a_reset),
};
TESTING_MAIN(tests)
