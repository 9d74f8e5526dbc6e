/* SPDX-License-Identifier: MIT
 *
 * The writer of traces (src/trace), read back by the reader of recordings: what is in the file after threads and
 * processes have ended in their ways, and what the program notices of it (nothing).
 */
#include "support/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "child.h"
#include "recording.h"
#include "text_file.h"
#include "trace/trace.h"

static char directory[PATH_MAX];

static char *path_of(const char *name) {
    static char path[PATH_MAX + 256];
    if (directory[0] == '\0') make_directory(directory, sizeof directory);
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static void read_back(const char *path, struct recording *recording) {
    char error[512];
    char *data;
    size_t size;
    if (!text_file_read(path, &data, &size, error, sizeof error)) fail_msg("%s", error);
    assert_true(recording_is_one(data, size));
    if (!recording_read(path, data, size, recording, error, sizeof error)) fail_msg("%s", error);
    free(data);
}

static void expect_note(const struct recording *recording, const char *part) {
    if (part == NULL ? recording->note[0] != '\0' : strstr(recording->note, part) == NULL)
        fail_msg("the note is \"%s\", expected %s", recording->note, part == NULL ? "none" : part);
}

static const char killed[] = "the process was killed, its disk was full, or it still runs";

/* ---- calls whose every field is known from a number ---- */

static struct trace_call nth_call(uint64_t n, uint64_t time) {
    const uint64_t streams = 100, pools = 3;
    const bool async = n % 5 != 0, alloc = n / streams % 2 == 0;
    const uint64_t stream = async ? 1 + n % streams : 0, pool = 1 + n % pools;
    struct trace_call call = {
        .time = time,
        .number = pool << 40 | n,
        .address = (UINT64_C(0x7f0000000000) + n * 512) & ~UINT64_C(511),
        .size = alloc ? 1 + n * 3 : 0,
        .stream = stream,
        .where = trace_where((int)(n % 4), async ? POOLCUDA_TRACE_ASYNC : POOLCUDA_TRACE_PLAIN,
                             async ? POOLCUDA_TRACE_STREAM_ID : POOLCUDA_TRACE_NO_STREAM),
        .operation = alloc ? POOLCUDA_TRACE_ALLOC : POOLCUDA_TRACE_RELEASE,
        .served = POOLCUDA_TRACE_BY_HIT,
        .runtime_door = n % 2,
    };
    if (n % 11 == 0) call.served = POOLCUDA_TRACE_BY_MISS;
    if (n % 13 == 0) call.size = alloc ? (UINT64_C(5) << 32) + n : 0;
    if (n % 17 == 0) call.address += 3;
    if (n % 19 == 0) {
        call.served = n % 2 ? POOLCUDA_TRACE_BY_DRIVER : POOLCUDA_TRACE_BY_NONE;
        call.code = (uint16_t)(n % 1000);
        call.number = 0;
        call.where = trace_where(-1, POOLCUDA_TRACE_PLAIN, POOLCUDA_TRACE_STREAM_HANDLE);
        call.stream = UINT64_C(0x8000000000000000) + n;
    }
    if (n % 23 == 0 && call.number != 0) call.number += UINT64_C(1) << 39; /* far from the others */
    return call;
}

static void record_calls(uint64_t from, uint64_t to) {
    for (uint64_t n = from; n < to; n++) {
        const struct trace_call call = nth_call(n, trace_time());
        trace_record(&call);
    }
}

/* In one word a free does not tell its address. */
static void expect_call(const struct recorded *actual, const struct trace_call *expected) {
    const bool in_a_word = expected->operation == POOLCUDA_TRACE_RELEASE && expected->served == POOLCUDA_TRACE_BY_HIT;
    assert_int_equal(actual->operation, expected->operation);
    if (!in_a_word) assert_int_equal(actual->address, expected->address);
    assert_int_equal(actual->size, expected->size);
    assert_int_equal(actual->number, expected->number);
    assert_int_equal(actual->stream, expected->stream);
    assert_int_equal(actual->device, (int32_t)expected->where);
    assert_int_equal(actual->memory, expected->where >> 32 & 0xff);
    assert_int_equal(actual->stream_kind, expected->where >> 40 & 0xff);
    assert_int_equal(actual->served, expected->served);
    assert_int_equal(actual->code, expected->code);
    assert_int_equal(actual->runtime_door, expected->runtime_door);
}

static void expect_calls(const struct recording *recording, uint64_t from, size_t count) {
    if (recording->count < count) fail_msg("%zu calls, expected %zu", recording->count, count);
    for (size_t i = 0; i < count; i++) {
        const struct trace_call expected = nth_call(from + i, 0);
        if (recording->calls[i].operation != expected.operation)
            fail_msg("call %zu of %zu is not the one made", i, count);
        expect_call(&recording->calls[i], &expected);
        if (i > 0) assert_true(recording->calls[i].ns >= recording->calls[i - 1].ns);
    }
}

enum { MANY = 30000 };

static void start_with(const char *path) {
    setenv("POOL_TRACE", path, 1);
    trace_start();
    CHECK(trace_is_on(), "off\n");
}

static int record_many(void *arg) {
    start_with(arg);
    const uint64_t before = trace_time();
    record_calls(0, MANY);
    CHECK(trace_time() > before, "no time went by\n");
    trace_finish();
    return 0;
}

static void every_field_of_every_call_is_read_back(void **state) {
    (void)state;
    struct recording recording;
    struct child child;
    struct stat status;
    char *path = path_of("many");
    child_start(&child, record_many, path);
    child_wait(&child);
    child_judge(&child);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    read_back(path, &recording);
    expect_note(&recording, NULL);
    assert_int_equal(recording.count, MANY);
    expect_calls(&recording, 0, MANY);
    assert_int_equal(recording.header.pid, child.pid);
    assert_int_equal(recording.calls[0].thread, child.pid);
    assert_true(recording.calls[MANY - 1].ns > 0);
    recording_free(&recording);
}

/* ---- a hit is small ---- */

static uint64_t hit_streams; /* in turns, each with memory of its own */

static int record_hits(void *arg) {
    start_with(arg);
    for (uint64_t n = 0; n < MANY; n++) {
        const uint64_t stream = 1 + n % hit_streams;
        struct trace_call call = {.time = trace_time(),
                                  .number = (8 + stream) << 40 | n,
                                  .stream = stream,
                                  .address = (n + 1) * 512,
                                  .size = 100,
                                  .operation = POOLCUDA_TRACE_ALLOC,
                                  .served = POOLCUDA_TRACE_BY_HIT};
        trace_record(&call);
        call.size = 0;
        call.operation = POOLCUDA_TRACE_RELEASE;
        trace_record(&call);
    }
    trace_finish();
    return 0;
}

static void a_hit_and_its_free_take_24_bytes(void **state) {
    (void)state;
    struct stat status;
    static const uint64_t streams[] = {1, 2, 8, 16};
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++) {
        char name[32];
        hit_streams = streams[i];
        snprintf(name, sizeof name, "hits-%d", (int)i);
        char *path = path_of(name);
        child_run(record_hits, path);
        assert_int_equal(stat(path, &status), 0);
        assert_in_range(status.st_size, 24 * MANY, 24 * MANY + 24 * MANY / 32);
    }
}

/* ---- records that share a time ---- */

static void free_now(uint64_t n) {
    trace_put_free(trace_own, trace_when(trace_own), UINT64_C(1) << 40 | n, 0, false);
}

static void pause_for(long ms) {
    const struct timespec time = {.tv_nsec = ms * 1000000};
    nanosleep(&time, NULL);
}

/* The first record makes the thread's block and its place. */
static void begin_frees(void) {
    const struct trace_call call = {.time = trace_time(),
                                    .number = UINT64_C(1) << 40,
                                    .operation = POOLCUDA_TRACE_RELEASE,
                                    .served = POOLCUDA_TRACE_BY_HIT};
    trace_record(&call);
}

static void write_out(uint64_t n) {
    const struct trace_call call = {.time = trace_time(),
                                    .number = UINT64_C(1) << 40 | n,
                                    .operation = POOLCUDA_TRACE_RELEASE,
                                    .served = POOLCUDA_TRACE_BY_DRIVER};
    trace_record(&call);
}

enum { CLOSE = 1000, PAUSES = 20, TICK_MS = 10 };

static int free_closely(void *arg) {
    start_with(arg);
    begin_frees();
    for (uint64_t n = 1; n < CLOSE; n++) free_now(n);
    trace_finish();
    return 0;
}

static void calls_that_follow_closely_share_times_by_at_most_four(void **state) {
    (void)state;
    struct recording recording;
    char *path = path_of("close");
    child_run(free_closely, path);
    read_back(path, &recording);
    assert_int_equal(recording.count, CLOSE);
    size_t times = 1, alike = 1, most = 1;
    for (size_t i = 0; i < CLOSE; i++) {
        assert_int_equal(recording.calls[i].number, UINT64_C(1) << 40 | i);
        if (i == 0) continue;
        const bool same = recording.calls[i].time == recording.calls[i - 1].time;
        alike = same ? alike + 1 : 1;
        times += !same;
        if (alike > most) most = alike;
    }
    assert_int_equal(most, 4);
    assert_true(times < CLOSE / 2);
    recording_free(&recording);
}

/* Amid close calls, pauses longer than a tick. */
static int free_with_pauses(void *arg) {
    start_with(arg);
    begin_frees();
    for (uint64_t n = 1; n < CLOSE; n++) {
        if (n % (CLOSE / PAUSES) == 0) pause_for(2 * TICK_MS);
        free_now(n);
    }
    trace_finish();
    return 0;
}

static void after_a_pause_a_call_has_its_own_time(void **state) {
    (void)state;
    struct recording recording;
    char *path = path_of("pauses");
    child_run(free_with_pauses, path);
    read_back(path, &recording);
    assert_int_equal(recording.count, CLOSE);
    for (size_t i = CLOSE / PAUSES; i < CLOSE; i += CLOSE / PAUSES)
        assert_true(recording.calls[i].ns >= recording.calls[i - 1].ns + TICK_MS * UINT64_C(1000000));
    recording_free(&recording);
}

static void expect_in_order(const struct recording *recording, uint64_t count) {
    uint64_t next = 1;
    for (size_t i = 0; i < recording->count; i++) {
        const uint64_t n = recording->calls[i].number & UINT32_MAX;
        if (n == 0) continue;
        assert_int_equal(n, next);
        next++;
    }
    assert_int_equal(next, count + 1);
}

/* Further from one another than a few microseconds, yet many in a tick. */
static int free_apart(void *arg) {
    start_with(arg);
    begin_frees();
    for (uint64_t n = 1; n < CLOSE; n++) {
        const struct timespec time = {.tv_nsec = 20000};
        nanosleep(&time, NULL);
        free_now(n);
    }
    trace_finish();
    return 0;
}

static void calls_that_do_not_follow_closely_have_their_own_times(void **state) {
    (void)state;
    struct recording recording;
    char *path = path_of("apart");
    child_run(free_apart, path);
    read_back(path, &recording);
    assert_int_equal(recording.count, CLOSE);
    for (size_t i = 1; i < CLOSE; i++) assert_true(recording.calls[i].time > recording.calls[i - 1].time);
    recording_free(&recording);
}

static _Atomic uint64_t turn;

/* Two threads in turns, some records each: what another recorded between comes between. The first has begun when the
 * other begins, which now and then writes its calls out. */
static void *free_in_turns(void *arg) {
    const uint64_t mine = (uint64_t)(uintptr_t)arg, records = 40;
    for (uint64_t n = mine; n < 200; n += 2) {
        while (atomic_load(&turn) != n) sched_yield();
        if (n == 0 || n == 101) begin_frees();
        for (uint64_t i = 0; i < records; i++) {
            if (mine == 1 && n < 100)
                write_out(1 + n * records + i);
            else
                free_now(1 + n * records + i);
        }
        atomic_store(&turn, n + 1);
    }
    return NULL;
}

static int free_in_two_threads(void *arg) {
    pthread_t threads[2];
    start_with(arg);
    for (uintptr_t i = 0; i < 2; i++) pthread_create(&threads[i], NULL, free_in_turns, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    trace_finish();
    return 0;
}

static void what_another_thread_recorded_between_comes_between(void **state) {
    (void)state;
    struct recording recording;
    char *path = path_of("turns");
    child_run(free_in_two_threads, path);
    read_back(path, &recording);
    expect_in_order(&recording, 200 * 40);
    recording_free(&recording);
}

/* The next thread has the block of the one before it, and nothing of its times. */
enum { FOLLOWING = 40, THEIRS = 60, OWN = 5, A_ROUND = THEIRS + OWN + 1 + OWN };

static void *write_one_out(void *arg) {
    write_out((uint64_t)(uintptr_t)arg);
    return NULL;
}

static void free_own(uint64_t from) {
    for (uint64_t n = from; n < from + OWN; n++) free_now(n);
}

static void in_a_thread(void *(*body)(void *), uintptr_t n) {
    pthread_t thread;
    pthread_create(&thread, NULL, body, (void *)n);
    pthread_join(thread, NULL);
}

static void *free_theirs(void *arg) {
    begin_frees();
    for (uint64_t i = 0; i < THEIRS; i++) free_now((uint64_t)(uintptr_t)arg + i);
    return NULL;
}

static int free_in_following_threads(void *arg) {
    start_with(arg);
    begin_frees();
    for (uintptr_t n = 1; n < FOLLOWING * A_ROUND; n += A_ROUND) {
        in_a_thread(free_theirs, n);
        free_own(n + THEIRS);
        in_a_thread(write_one_out, n + THEIRS + OWN);
        free_own(n + THEIRS + OWN + 1);
    }
    trace_finish();
    return 0;
}

static void a_thread_has_no_time_of_the_one_before_it(void **state) {
    (void)state;
    struct recording recording;
    char *path = path_of("following");
    child_run(free_in_following_threads, path);
    read_back(path, &recording);
    expect_in_order(&recording, FOLLOWING * A_ROUND);
    recording_free(&recording);
}

static int free_around_calls(void *arg) {
    start_with(arg);
    begin_frees();
    for (uint64_t n = 1; n < CLOSE; n++) {
        if (n % 50 == 0)
            write_out(n);
        else
            free_now(n);
    }
    trace_finish();
    return 0;
}

static void calls_written_out_stay_where_they_were_made(void **state) {
    (void)state;
    struct recording recording;
    char *path = path_of("around");
    child_run(free_around_calls, path);
    read_back(path, &recording);
    assert_int_equal(recording.count, CLOSE);
    for (size_t i = 0; i < CLOSE; i++) assert_int_equal(recording.calls[i].number, UINT64_C(1) << 40 | i);
    recording_free(&recording);
}

/* ---- threads ---- */

enum { THREADS = 4 };

static void *thread_records(void *arg) {
    const uint64_t first = (uint64_t)(uintptr_t)arg;
    record_calls(first, first + MANY / THREADS);
    return NULL;
}

static void run_threads(void) {
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, thread_records, (void *)(i * (MANY / THREADS)));
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

static int record_in_threads(void *arg) {
    start_with(arg);
    run_threads();
    _exit(0); /* without any end of the process's */
}

static void threads_that_have_ended_lose_nothing_and_are_merged_by_time(void **state) {
    (void)state;
    struct recording recording;
    char *path = path_of("threads");
    child_run(record_in_threads, path);
    read_back(path, &recording);
    expect_note(&recording, killed);
    assert_int_equal(recording.count, MANY);
    size_t counts[THREADS] = {0}, seen = 0;
    uint32_t numbers[THREADS] = {0};
    for (size_t i = 0; i < recording.count; i++) {
        const struct recorded *call = &recording.calls[i];
        size_t thread = 0;
        while (thread < seen && numbers[thread] != call->thread) thread++;
        assert_true(thread < THREADS);
        if (thread == seen) numbers[seen++] = call->thread;
        counts[thread]++;
        if (i > 0) assert_true(call->ns >= recording.calls[i - 1].ns);
    }
    for (int i = 0; i < THREADS; i++) assert_int_equal(counts[i], MANY / THREADS);
    recording_free(&recording);
}

static pthread_barrier_t barrier;

static void *thread_stays(void *arg) {
    thread_records(arg);
    pthread_barrier_wait(&barrier);
    pause();
    return NULL;
}

static int end_with_threads(void *arg) {
    pthread_t threads[THREADS];
    start_with(arg);
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, thread_stays, (void *)(i * (MANY / THREADS)));
    pthread_barrier_wait(&barrier);
    trace_finish();
    _exit(0);
}

static void the_processs_end_writes_what_its_threads_have(void **state) {
    (void)state;
    struct recording recording;
    char *path = path_of("staying");
    child_run(end_with_threads, path);
    read_back(path, &recording);
    expect_note(&recording, NULL);
    assert_int_equal(recording.count, MANY);
    recording_free(&recording);
}

static int record_after_the_end(void *arg) {
    start_with(arg);
    record_calls(0, 10);
    trace_finish();
    record_calls(10, 20);
    _exit(0);
}

static void calls_after_the_end_are_written_at_once(void **state) {
    (void)state;
    struct recording recording;
    char *path = path_of("late");
    child_run(record_after_the_end, path);
    read_back(path, &recording);
    expect_note(&recording, NULL);
    assert_int_equal(recording.count, 20);
    expect_calls(&recording, 0, 20);
    recording_free(&recording);
}

/* ---- killed ---- */

static int record_and_be_killed(void *arg) {
    start_with(arg);
    record_calls(0, MANY);
    kill(getpid(), SIGKILL);
    return 0;
}

static void a_killed_process_loses_at_most_its_last_block(void **state) {
    (void)state;
    struct recording recording;
    struct child child;
    char *path = path_of("killed");
    child_start(&child, record_and_be_killed, path);
    child_wait(&child);
    assert_true(WIFSIGNALED(child.status));
    read_back(path, &recording);
    expect_note(&recording, killed);
    assert_in_range(recording.count, MANY - POOLCUDA_TRACE_BLOCK_BYTES / 8, MANY - 1);
    expect_calls(&recording, 0, recording.count);
    recording_free(&recording);
}

static int be_killed_after_a_while(void *arg) {
    start_with(arg);
    record_calls(0, 5);
    /* As if seconds had gone by. */
    const struct trace_call call =
        nth_call(5, trace_time() + (UINT64_C(1) << (POOLCUDA_TRACE_TIME_BITS + COUNTER_SHIFT)));
    trace_record(&call);
    kill(getpid(), SIGKILL);
    return 0;
}

static void what_is_older_than_a_while_is_written_with_the_next_call(void **state) {
    (void)state;
    struct recording recording;
    struct child child;
    char *path = path_of("waited");
    child_start(&child, be_killed_after_a_while, path);
    child_wait(&child);
    read_back(path, &recording);
    assert_int_equal(recording.count, 5);
    expect_calls(&recording, 0, 5);
    recording_free(&recording);
}

/* ---- other processes ---- */

static int record_and_fork(void *arg) {
    start_with(arg);
    record_calls(0, MANY);
    const pid_t child = fork();
    if (child == 0) {
        trace_forget_in_child();
        CHECK(!trace_is_on(), "on\n");
        trace_start();
        record_calls(100, 110);
        trace_finish();
        printf("%ld\n", (long)getpid());
        fflush(stdout);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    record_calls(MANY, MANY + 10);
    trace_finish();
    return status;
}

static void expect_two_files(const char *pattern, const char *own, const char *childs) {
    struct recording recording;
    struct child child;
    char name[128];
    child_start(&child, record_and_fork, path_of(pattern));
    child_wait(&child);
    child_judge(&child);
    snprintf(name, sizeof name, own, (long)child.pid);
    read_back(path_of(name), &recording);
    expect_note(&recording, NULL);
    assert_int_equal(recording.count, MANY + 10);
    expect_calls(&recording, 0, MANY + 10);
    recording_free(&recording);
    snprintf(name, sizeof name, childs, atol(child.text));
    read_back(path_of(name), &recording);
    expect_note(&recording, NULL);
    assert_int_equal(recording.count, 10);
    expect_calls(&recording, 100, 10);
    assert_int_equal(recording.header.pid, atol(child.text));
    recording_free(&recording);
}

static void a_forked_child_begins_a_file_of_its_own(void **state) {
    (void)state;
    expect_two_files("forked", "forked", "forked.%ld");
}

static void a_file_is_named_for_the_process_that_writes_it(void **state) {
    (void)state;
    expect_two_files("named-%p", "named-%ld", "named-%ld");
}

static void *notice_new_process(void *arg) {
    trace_forget_in_child();
    trace_start();
    return arg;
}

static int record_and_clone(void *arg) {
    start_with(arg);
    record_calls(0, 10);
    const pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, notice_new_process, NULL);
        pthread_join(thread, NULL);
        record_calls(100, 110);
        trace_finish();
        printf("%ld\n", (long)getpid());
        fflush(stdout);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    trace_finish();
    return status;
}

static void a_child_that_another_of_its_threads_noticed_writes_nothing_of_its_parents(void **state) {
    (void)state;
    struct recording recording;
    char name[64];
    const char *text = child_run(record_and_clone, path_of("cloned"));
    snprintf(name, sizeof name, "cloned.%ld", atol(text));
    read_back(path_of(name), &recording);
    expect_note(&recording, NULL);
    assert_int_equal(recording.count, 10);
    expect_calls(&recording, 100, 10);
    recording_free(&recording);
}

static int record_few(void *arg) {
    start_with(arg);
    record_calls(0, 10);
    trace_finish();
    return 0;
}

static void a_file_that_exists_is_not_written_over(void **state) {
    (void)state;
    struct recording recording;
    struct child child;
    char name[64];
    for (int i = 0; i < 2; i++) {
        child_start(&child, record_few, path_of("twice"));
        child_wait(&child);
        child_judge(&child);
    }
    read_back(path_of("twice"), &recording);
    assert_int_not_equal(recording.header.pid, child.pid);
    recording_free(&recording);
    snprintf(name, sizeof name, "twice.%ld", (long)child.pid);
    read_back(path_of(name), &recording);
    assert_int_equal(recording.header.pid, child.pid);
    recording_free(&recording);
}

static int record_again_and_again(void *arg) {
    for (int i = 0; i < 3; i++) {
        record_few(arg);
        trace_forget_in_child();
    }
    return 0;
}

static void a_process_that_becomes_another_program_begins_another_file(void **state) {
    (void)state;
    struct child child;
    char name[64];
    child_start(&child, record_again_and_again, path_of("exec-%p"));
    child_wait(&child);
    child_judge(&child);
    const long pid = child.pid;
    const char *const formats[] = {"exec-%ld", "exec-%ld.%ld", "exec-%ld.%ld.2"};
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, formats[i], pid, pid);
        if (access(path_of(name), F_OK) != 0) fail_msg("%s is not there", name);
    }
}

/* ---- files that cannot be written ---- */

static int record_nowhere(void *arg) {
    start_with(arg);
    errno = 4321;
    record_calls(0, MANY);
    CHECK_EQUAL(errno, 4321);
    CHECK(!trace_is_on(), "on\n");
    trace_finish();
    return 0;
}

static void expect_a_line(const char *path, const char *before, const char *after) {
    const char *text = child_run(record_nowhere, (void *)(uintptr_t)path), *end = strchr(text, '\n');
    char expected[2 * PATH_MAX + 512];
    snprintf(expected, sizeof expected, "warning: POOL_TRACE: %s%s%s: nothing is recorded\n", before, path, after);
    if (strstr(text, expected) == NULL || end == NULL || end[1] != '\0')
        fail_msg("printed: %s, expected one line: %s", text, expected);
}

static void a_file_that_cannot_be_made_costs_one_line(void **state) {
    (void)state;
    expect_a_line(path_of("no/such/folder"), "cannot make ", ": No such file or directory");
}

static void a_folder_is_told_with_what_would_be_a_file_in_it(void **state) {
    (void)state;
    char *path = path_of("recordings"), after[PATH_MAX + 512];
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(after, sizeof after, " is a folder; a file in it would be %s/run.%%p", path);
    expect_a_line(path, "", after);
    expect_a_line("/tmp/", "", " is a folder; a file in it would be /tmp/run.%p");
}

static void what_is_no_plain_file_is_left_alone(void **state) {
    (void)state;
    char *path = path_of("pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_a_line(path, "", " is no plain file; it must be one, or not be there");
    expect_a_line("/dev/null", "", " is no plain file; it must be one, or not be there");
    char target[PATH_MAX + 256];
    strcpy(target, path_of("target"));
    path = path_of("link");
    assert_int_equal(symlink(target, path), 0);
    expect_a_line(path, "", " is no plain file; it must be one, or not be there");
    assert_int_equal(access(target, F_OK), -1);
}

static int record_beyond_the_limit(void *arg) {
    const struct rlimit limit = {200000, 200000};
    signal(SIGXFSZ, SIG_DFL);
    setrlimit(RLIMIT_FSIZE, &limit);
    return record_nowhere(arg);
}

static void expect_whole_blocks(const char *path) {
    struct recording recording;
    read_back(path, &recording);
    expect_note(&recording, "bytes after the last whole block were dropped");
    expect_note(&recording, killed);
    assert_in_range(recording.count, 100, MANY - 1);
    expect_calls(&recording, 0, recording.count);
    recording_free(&recording);
}

static int record_beyond_the_limit_logged(void *arg) {
    setenv("POOL_LOG", "1", 1);
    return record_beyond_the_limit(arg);
}

static void a_file_size_limit_costs_the_rest_and_no_signal(void **state) {
    (void)state;
    char *path = path_of("limited");
    const char *text = child_run(record_beyond_the_limit_logged, path);
    assert_non_null(strstr(text, "cannot write"));
    assert_non_null(strstr(text, "File too large"));
    expect_whole_blocks(path);
}

static void what_is_lost_later_is_not_said_unless_the_log_asks(void **state) {
    (void)state;
    assert_string_equal(child_run(record_beyond_the_limit, path_of("limited")), "");
}

/* A filesystem of its own, seen by this child alone; the recording is moved out of it at the end. */
static int record_on_a_full_disk(void *arg) {
    char folder[] = "/tmp/poolcuda-full-XXXXXX", path[64], copy[256];
    if (mkdtemp(folder) == NULL) return 2;
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", folder, "tmpfs", 0, "size=200k") != 0) {
        rmdir(folder);
        CHILD_SKIP("cannot mount a small filesystem: %s", strerror(errno));
    }
    snprintf(path, sizeof path, "%s/recording", folder);
    setenv("POOL_LOG", "1", 1);
    const int result = record_nowhere(path);
    snprintf(copy, sizeof copy, "cp %s %s", path, (char *)arg);
    if (system(copy) != 0) return 3;
    umount(folder);
    rmdir(folder);
    return result;
}

static void a_full_disk_costs_the_rest(void **state) {
    (void)state;
    char *path = path_of("full");
    const char *text = child_run(record_on_a_full_disk, path);
    assert_non_null(strstr(text, "cannot write"));
    expect_whole_blocks(path);
}

/* ---- what the program notices ---- */

static int descriptor_of(const char *path) {
    struct stat wanted, status;
    if (stat(path, &wanted) != 0) return -1;
    for (int fd = 0; fd < 1024; fd++)
        if (fstat(fd, &status) == 0 && status.st_dev == wanted.st_dev && status.st_ino == wanted.st_ino) return fd;
    return -1;
}

static int record_with_one_descriptor(void *arg) {
    const int before = open_descriptors();
    start_with(arg);
    CHECK_EQUAL(open_descriptors(), before);
    record_calls(0, MANY);
    CHECK_EQUAL(open_descriptors(), before + 1);
    const int fd = descriptor_of(arg);
    CHECK(fd >= 100, "%d\n", fd);
    CHECK_EQUAL(fcntl(fd, F_GETFD), FD_CLOEXEC);
    return 0;
}

static void one_descriptor_is_open_high_up_and_not_for_other_programs(void **state) {
    (void)state;
    child_run(record_with_one_descriptor, path_of("descriptor"));
}

static int record_without_descriptors(void *arg) {
    char other[PATH_MAX];
    start_with(arg);
    record_calls(0, MANY / 3);
    const int fd = descriptor_of(arg);
    CHECK(fd > 2, "%d\n", fd);
    close(fd);
    record_calls(MANY / 3, MANY / 3 * 2);
    /* Now something else has its number. */
    const int now = descriptor_of(arg);
    snprintf(other, sizeof other, "%s.other", (char *)arg);
    const int mine = open(other, O_RDWR | O_CREAT, 0600);
    CHECK_EQUAL(dup2(mine, now), now);
    record_calls(MANY / 3 * 2, MANY);
    trace_finish();
    struct stat status;
    CHECK_EQUAL(fstat(mine, &status), 0);
    CHECK_EQUAL(status.st_size, 0);
    return 0;
}

static void a_program_that_closes_all_descriptors_loses_nothing(void **state) {
    (void)state;
    struct recording recording;
    char *path = path_of("closed");
    child_run(record_without_descriptors, path);
    read_back(path, &recording);
    expect_note(&recording, NULL);
    assert_int_equal(recording.count, MANY);
    expect_calls(&recording, 0, MANY);
    recording_free(&recording);
}

static int record_without_room(void *arg) {
    start_with(arg);
    record_calls(0, MANY / 3);
    close(descriptor_of(arg));
    const struct rlimit none = {3, 1024}, some = {1024, 1024};
    setrlimit(RLIMIT_NOFILE, &none);
    record_calls(MANY / 3, MANY / 3 * 2);
    setrlimit(RLIMIT_NOFILE, &some);
    record_calls(MANY / 3 * 2, MANY);
    trace_finish();
    return 0;
}

static void calls_that_could_not_be_written_meanwhile_are_counted(void **state) {
    (void)state;
    struct recording recording;
    char *path = path_of("missed"), expected[64];
    child_run(record_without_room, path);
    read_back(path, &recording);
    assert_in_range(recording.count, MANY / 3, MANY - 1);
    snprintf(expected, sizeof expected, "%zu calls could not be recorded", MANY - recording.count);
    expect_note(&recording, expected);
    recording_free(&recording);
}

static int record_after_removal(void *arg) {
    setenv("POOL_LOG", "1", 1);
    start_with(arg);
    record_calls(0, MANY / 3);
    close(descriptor_of(arg));
    unlink(arg);
    const int other = open(arg, O_RDWR | O_CREAT, 0600);
    record_calls(MANY / 3, MANY);
    CHECK(!trace_is_on(), "on\n");
    struct stat status;
    CHECK_EQUAL(fstat(other, &status), 0);
    CHECK_EQUAL(status.st_size, 0);
    return 0;
}

static void another_file_under_its_name_is_left_alone(void **state) {
    (void)state;
    const char *text = child_run(record_after_removal, path_of("removed"));
    if (strstr(text, "is another file now") == NULL) fail_msg("printed: %s", text);
}

static int keep_state(void *arg) {
    sigset_t before, after;
    memset(&before, 0, sizeof before);
    memset(&after, 0, sizeof after);
    sigprocmask(SIG_BLOCK, NULL, &before);
    start_with(arg);
    errno = 4321;
    record_calls(0, MANY);
    CHECK_EQUAL(errno, 4321);
    trace_finish();
    CHECK_EQUAL(errno, 4321);
    sigprocmask(SIG_BLOCK, NULL, &after);
    CHECK_EQUAL(memcmp(&before, &after, sizeof before), 0);
    return 0;
}

static void errno_and_signal_masks_stay(void **state) {
    (void)state;
    child_run(keep_state, path_of("state"));
}

static int start_without(void *arg) {
    (void)arg;
    trace_start();
    CHECK(!trace_is_on(), "on\n");
    trace_finish();
    return 0;
}

static void without_the_variable_nothing_is_recorded(void **state) {
    (void)state;
    child_run(start_without, NULL);
}

static int start_and_record_nothing(void *arg) {
    start_with(arg);
    trace_finish();
    CHECK_EQUAL(access(arg, F_OK), -1);
    return 0;
}

static void without_a_call_there_is_no_file(void **state) {
    (void)state;
    child_run(start_and_record_nothing, path_of("none"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_field_of_every_call_is_read_back),
    cmocka_unit_test(a_hit_and_its_free_take_24_bytes),
    cmocka_unit_test(calls_that_follow_closely_share_times_by_at_most_four),
    cmocka_unit_test(after_a_pause_a_call_has_its_own_time),
    cmocka_unit_test(calls_that_do_not_follow_closely_have_their_own_times),
    cmocka_unit_test(what_another_thread_recorded_between_comes_between),
    cmocka_unit_test(a_thread_has_no_time_of_the_one_before_it),
    cmocka_unit_test(calls_written_out_stay_where_they_were_made),
    cmocka_unit_test(threads_that_have_ended_lose_nothing_and_are_merged_by_time),
    cmocka_unit_test(the_processs_end_writes_what_its_threads_have),
    cmocka_unit_test(calls_after_the_end_are_written_at_once),
    cmocka_unit_test(a_killed_process_loses_at_most_its_last_block),
    cmocka_unit_test(what_is_older_than_a_while_is_written_with_the_next_call),
    cmocka_unit_test(a_forked_child_begins_a_file_of_its_own),
    cmocka_unit_test(a_child_that_another_of_its_threads_noticed_writes_nothing_of_its_parents),
    cmocka_unit_test(a_file_is_named_for_the_process_that_writes_it),
    cmocka_unit_test(a_file_that_exists_is_not_written_over),
    cmocka_unit_test(a_process_that_becomes_another_program_begins_another_file),
    cmocka_unit_test(a_file_that_cannot_be_made_costs_one_line),
    cmocka_unit_test(a_folder_is_told_with_what_would_be_a_file_in_it),
    cmocka_unit_test(what_is_no_plain_file_is_left_alone),
    cmocka_unit_test(what_is_lost_later_is_not_said_unless_the_log_asks),
    cmocka_unit_test(a_file_size_limit_costs_the_rest_and_no_signal),
    cmocka_unit_test(a_full_disk_costs_the_rest),
    cmocka_unit_test(one_descriptor_is_open_high_up_and_not_for_other_programs),
    cmocka_unit_test(a_program_that_closes_all_descriptors_loses_nothing),
    cmocka_unit_test(calls_that_could_not_be_written_meanwhile_are_counted),
    cmocka_unit_test(another_file_under_its_name_is_left_alone),
    cmocka_unit_test(errno_and_signal_masks_stay),
    cmocka_unit_test(without_the_variable_nothing_is_recorded),
    cmocka_unit_test(without_a_call_there_is_no_file),
};

TESTING_MAIN(tests)
