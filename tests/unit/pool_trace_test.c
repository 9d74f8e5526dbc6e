/* SPDX-License-Identifier: MIT
 *
 * What the pool records of the calls that it serves (src/pool/watch.c): which calls, and in the order of which stream;
 * and that frees of several threads pair with their allocations.
 */
#include "pool_fixture.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recording.h"
#include "text_file.h"
#include "trace/trace.h"

static char path[64];

/* In a child, since a process has one trace: the calls of `body`, read back. */
static void record(void (*body)(struct fixture *fixture), struct recording *recording) {
    char error[512], *data;
    size_t size;
    int status;
    strcpy(path, "/tmp/poolcuda-trace-XXXXXX");
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    unlink(path);
    const pid_t child = fork();
    if (child == 0) {
        struct fixture fixture;
        setenv("POOL_TRACE", path, 1);
        trace_start();
        fixture_begin(&fixture, 256 * MIB_BYTES, fixture_options());
        body(&fixture);
        trace_finish();
        fixture_end(&fixture);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    const bool read = text_file_read(path, &data, &size, error, sizeof error);
    unlink(path);
    if (!read || !recording_read(path, data, size, recording, error, sizeof error)) fail_msg("%s", error);
    free(data);
    assert_string_equal(recording->note, "");
}

static void expect_free(const struct recorded *call, const struct recorded *allocation) {
    assert_int_equal(call->operation, POOLCUDA_TRACE_RELEASE);
    assert_int_equal(call->number, allocation->number);
    assert_int_equal(call->address, allocation->address);
    assert_int_equal(call->served, POOLCUDA_TRACE_BY_HIT);
    assert_int_equal(call->code, 0);
}

static void serve(struct fixture *f) {
    must_free(f, must_alloc(f, 1000));
    must_free(f, must_alloc(f, 2000));
}

static void misses_hits_and_frees_are_told_apart(void **state) {
    (void)state;
    struct recording recording;
    record(serve, &recording);
    assert_int_equal(recording.count, 4);
    const struct recorded *calls = recording.calls;
    assert_int_equal(calls[0].served, POOLCUDA_TRACE_BY_MISS);
    assert_int_equal(calls[0].size, 1000);
    assert_int_equal(calls[2].served, POOLCUDA_TRACE_BY_HIT);
    assert_int_equal(calls[2].size, 2000);
    expect_free(&calls[1], &calls[0]);
    expect_free(&calls[3], &calls[2]);
    recording_free(&recording);
}

static void fail_to_wait(struct fixture *f) {
    const uint64_t address = must_alloc(f, 1000);
    f->device.synchronize_fails_with = 700;
    assert_int_equal(pool_free(f->pool, address, POOL_DOOR_DRIVER), 700);
    f->device.synchronize_fails_with = 0;
    must_free(f, must_alloc(f, 2000));
}

static void a_free_whose_wait_failed_gave_nothing_up(void **state) {
    (void)state;
    struct recording recording;
    record(fail_to_wait, &recording);
    assert_int_equal(recording.count, 3);
    assert_int_equal(recording.calls[1].operation, POOLCUDA_TRACE_ALLOC);
    expect_free(&recording.calls[2], &recording.calls[1]);
    recording_free(&recording);
}

static void free_in_orders(struct fixture *f) {
    uint64_t address = must_alloc_on(f, STREAM(1), 1000);
    must_free_on(f, STREAM(2), address);
    assert_int_not_equal(pool_free_async(f->pool, address, STREAM(1), POOL_DOOR_DRIVER), 0);
    assert_int_equal(must_alloc_on(f, STREAM(2), 1000), address);
    must_free(f, address);
    address = must_alloc(f, 1000);
    must_free_on(f, STREAM(1), address);
}

static void frees_have_the_stream_in_whose_order_they_are(void **state) {
    (void)state;
    struct recording recording;
    record(free_in_orders, &recording);
    assert_int_equal(recording.count, 6);
    const struct recorded *calls = recording.calls;
    for (int i = 0; i < 6; i += 2) expect_free(&calls[i + 1], &calls[i]);
    const uint64_t one = calls[0].stream, two = calls[1].stream;
    assert_int_not_equal(one, two);
    const uint64_t streams[] = {one, two, two, 0, 0, one};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(calls[i].stream, streams[i]);
        assert_int_equal(calls[i].stream_kind, streams[i] ? POOLCUDA_TRACE_STREAM_ID : POOLCUDA_TRACE_NO_STREAM);
        assert_int_equal(calls[i].memory, i < 4 ? POOLCUDA_TRACE_ASYNC : POOLCUDA_TRACE_PLAIN);
    }
    recording_free(&recording);
}

/* ---- threads that free what others allocated ---- */

enum { THREADS = 4, ROUNDS = 3000, SHARED = 16 };

static struct fixture *shared;
static _Atomic uint64_t slots[SHARED];

static void *exchange(void *arg) {
    unsigned random = (unsigned)(uintptr_t)arg;
    for (int i = 0; i < ROUNDS; i++) {
        random = random * 1103515245 + 12345;
        uint64_t address = 0;
        if (pool_alloc(shared->pool, 512 + random % 4096, POOL_DOOR_RUNTIME, &address) != 0) abort();
        address = atomic_exchange(&slots[random >> 16 & (SHARED - 1)], address);
        if (address && pool_free(shared->pool, address, POOL_DOOR_RUNTIME) != 0) abort();
    }
    return NULL;
}

static void exchange_in_threads(struct fixture *f) {
    pthread_t threads[THREADS];
    shared = f;
    for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, exchange, (void *)(i + 1));
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < SHARED; i++)
        if (slots[i]) must_free(f, slots[i]);
}

/* No address is allocated twice without a free between, in the order of the recording. */
static void expect_no_overlap(const struct recording *recording) {
    enum { UNITS = 1 << 19 };
    unsigned char *live = calloc(UNITS, 1);
    size_t allocations = 0, frees = 0;
    const uint64_t lowest = recording->calls[0].address & ~(uint64_t)(256 * MIB_BYTES - 1);
    for (size_t i = 0; i < recording->count; i++) {
        const struct recorded *call = &recording->calls[i];
        const uint64_t unit = (call->address - lowest) / 512;
        assert_true(unit < UNITS);
        const bool alloc = call->operation == POOLCUDA_TRACE_ALLOC;
        if (live[unit] == alloc) fail_msg("call %zu: %#jx is%s live", i, (uintmax_t)call->address, alloc ? "" : " not");
        live[unit] = alloc;
        allocations += alloc;
        frees += !alloc;
    }
    assert_int_equal(allocations, THREADS * ROUNDS);
    assert_int_equal(frees, allocations);
    free(live);
}

static void of_two_owners_of_an_address_the_first_ends_before_the_second_begins(void **state) {
    (void)state;
    struct recording recording;
    record(exchange_in_threads, &recording);
    expect_no_overlap(&recording);
    recording_free(&recording);
}

/* Each free is the first call of its thread, and what it gave up is at once taken by one amid close calls. */
enum { FREEING = 200, FREED_AT_ONCE = 1 << 15 };

static _Atomic uint64_t given, free_begun;

static void *free_given(void *arg) {
    uint64_t address;
    atomic_store(&free_begun, 1);
    while ((address = atomic_load(&given)) == 0) sched_yield();
    if (pool_free(arg, address, POOL_DOOR_RUNTIME) != 0) abort();
    return NULL;
}

static void take_what_new_threads_free(struct fixture *f) {
    for (int i = 0; i < FREEING; i++) {
        pthread_t thread;
        uint64_t address = must_alloc(f, FREED_AT_ONCE), taken = 0;
        atomic_store(&given, 0);
        atomic_store(&free_begun, 0);
        pthread_create(&thread, NULL, free_given, f->pool);
        while (!atomic_load(&free_begun)) sched_yield();
        /* Then the other's free is amid these. */
        for (int n = 0; n < 2000 && taken != address; n++) {
            if (taken) must_free(f, taken);
            if (n == 20) atomic_store(&given, address);
            taken = must_alloc(f, FREED_AT_ONCE);
        }
        pthread_join(thread, NULL);
        must_free(f, taken);
    }
}

static void what_a_threads_first_call_frees_is_free_before_it_is_taken(void **state) {
    (void)state;
    struct recording recording;
    record(take_what_new_threads_free, &recording);
    size_t live = 0;
    uint64_t addresses[8] = {0};
    for (size_t i = 0; i < recording.count; i++) {
        const struct recorded *call = &recording.calls[i];
        size_t at = 0;
        while (at < live && addresses[at] != call->address) at++;
        if (call->operation == POOLCUDA_TRACE_ALLOC) {
            if (at < live) fail_msg("call %zu: %#jx is live", i, (uintmax_t)call->address);
            assert_true(live < 8);
            addresses[live++] = call->address;
        } else {
            if (at == live) fail_msg("call %zu: %#jx is not live", i, (uintmax_t)call->address);
            addresses[at] = addresses[--live];
        }
    }
    assert_int_equal(live, 0);
    recording_free(&recording);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(misses_hits_and_frees_are_told_apart),
    cmocka_unit_test(a_free_whose_wait_failed_gave_nothing_up),
    cmocka_unit_test(frees_have_the_stream_in_whose_order_they_are),
    cmocka_unit_test(of_two_owners_of_an_address_the_first_ends_before_the_second_begins),
    cmocka_unit_test(what_a_threads_first_call_frees_is_free_before_it_is_taken),
};

TESTING_MAIN(tests)
