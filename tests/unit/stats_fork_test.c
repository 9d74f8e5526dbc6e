/* SPDX-License-Identifier: MIT
 *
 * Forked children and the figures: they touch nothing of their parent's, and may have their own.
 */
#include "support/testing.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "child.h"
#include "publisher.h"
#include "stats/writer.h"

static int write_in_forked_child(void *arg) {
    (void)arg;
    static struct segment_storage before, after;
    char path[PATH_MAX];
    int status;
    stats_start(true);
    if (stats_header()->state != POOLCUDA_RUNNING) CHILD_SKIP("no segment can be made in /dev/shm\n");
    struct poolcuda_pool *pool = stats_pool_open();
    struct poolcuda_cell *cell = stats_cell_open(pool, 3, 0);
    stats_pool_publish(pool);
    stats_set(&cell->classes[3].allocs, 5);
    stats_pass(POOLCUDA_PASS_foreign);
    const struct poolcuda_map_row row = {.address = 4096, .size_bytes = 512, .live_bytes = 512};
    stats_map_put(pool, &row);
    CHECK(stats_map_admits(pool, 8192, 512), "no row for another\n");
    shm_path_of(path, getpid());
    CHECK(shm_read(path, &before), "no segment\n");
    const pid_t pid = fork();
    if (pid == 0) {
        struct poolcuda_header *parents = stats_header();
        errno = 4321;
        stats_forget_in_child(false);
        CHECK_EQUAL(errno, 4321);
        CHECK(stats_header() != parents, "still the parent's\n");
        CHECK_EQUAL(stats_pool_number(pool), 0);
        CHECK_EQUAL(stats_header()->pass_through[POOLCUDA_PASS_foreign], 0);
        const struct poolcuda_event event = {.type = POOLCUDA_EVENT_trim};
        stats_event(&event);
        stats_pass(POOLCUDA_PASS_forked);
        stats_add(&cell->classes[3].allocs, 100); /* pointers that the pool kept */
        stats_add(&pool->waits, 100);
        stats_add(&parents->pass_through[0], 100);
        CHECK(!stats_map_admits(pool, 4096, 512), "the child has a row\n");
        stats_map_put(pool, &row);
        stats_map_drop(pool, 4096);
        stats_start(true);
        CHECK(stats_header() != parents, "the child was given the parent's segment\n");
        CHECK(stats_header()->state != POOLCUDA_RUNNING, "the child published\n");
        struct poolcuda_pool *own = stats_pool_open();
        CHECK(own != pool, "the child was given the parent's record\n");
        stats_pool_publish(own);
        stats_cell_open(own, 1, 0);
        stats_pool_gone(own);
        stats_finish();
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the child ended with %d\n", status);
    CHECK(shm_read(path, &after), "the child removed the segment\n");
    CHECK(memcmp(&before, &after, sizeof before) == 0, "the child wrote into the segment\n");
    CHECK_EQUAL(after.map[0].live_bytes, 512);
    stats_pass(POOLCUDA_PASS_foreign);
    CHECK_EQUAL(stats_header()->pass_through[POOLCUDA_PASS_foreign], 2);
    CHECK_EQUAL(cell->classes[3].allocs, 5);
    stats_finish();
    CHECK(!shm_exists(path), "the segment stayed\n");
    return 0;
}

static void a_forked_child_touches_nothing_of_its_parents(void **state) {
    (void)state;
    child_run(write_in_forked_child, NULL);
}

static int end_forked_child(void *arg) {
    (void)arg;
    char path[PATH_MAX];
    int status;
    stats_start(true);
    if (stats_header()->state != POOLCUDA_RUNNING) CHILD_SKIP("no segment can be made in /dev/shm\n");
    shm_path_of(path, getpid());
    const pid_t pid = fork();
    if (pid == 0) {
        stats_finish(); /* a child that nobody told of the fork */
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the child ended with %d\n", status);
    CHECK(shm_exists(path), "the child removed the segment\n");
    CHECK_EQUAL(stats_header()->state, POOLCUDA_RUNNING);
    CHECK_EQUAL(stats_header()->ended_ns, 0);
    stats_finish();
    return 0;
}

static void the_end_of_a_forked_child_is_not_its_parents(void **state) {
    (void)state;
    child_run(end_forked_child, NULL);
}

static int start_in_forked_child(void *arg) {
    (void)arg;
    char path[PATH_MAX];
    int status;
    stats_pass(POOLCUDA_PASS_foreign);
    const pid_t pid = fork();
    if (pid == 0) {
        stats_forget_in_child(false);
        stats_start(true);
        if (stats_header()->state != POOLCUDA_RUNNING) _exit(CHILD_SKIPPED);
        shm_path_of(path, getpid());
        CHECK(shm_exists(path), "no segment\n");
        CHECK_EQUAL(stats_header()->pid, getpid());
        CHECK_EQUAL(stats_header()->pass_through[POOLCUDA_PASS_foreign], 0);
        stats_finish();
        CHECK(!shm_exists(path), "the segment stayed\n");
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status), "the child ended with %d\n", status);
    CHECK_EQUAL(stats_header()->pass_through[POOLCUDA_PASS_foreign], 1);
    return WEXITSTATUS(status);
}

static void a_child_forked_before_the_start_has_its_own_segment(void **state) {
    (void)state;
    child_run(start_in_forked_child, NULL);
}

static bool stop_opening;

static void *open_pools_for_ever(void *arg) {
    (void)arg;
    while (!__atomic_load_n(&stop_opening, __ATOMIC_RELAXED)) stats_pool_gone(stats_pool_open());
    return NULL;
}

static int fork_while_others_open(void *arg) {
    (void)arg;
    enum { THREADS = 3, FORKS = 100 };
    pthread_t threads[THREADS];
    stats_start(true);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, open_pools_for_ever, NULL);
    for (int i = 0; i < FORKS; i++) {
        int status;
        const pid_t pid = fork();
        if (pid == 0) {
            alarm(10);
            stats_forget_in_child(false);
            stats_start(true);
            stats_pool_gone(stats_pool_open());
            _exit(0);
        }
        CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the child ended with %d\n", status);
    }
    __atomic_store_n(&stop_opening, true, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    stats_finish();
    return 0;
}

static void a_lock_held_by_another_thread_does_not_stop_a_forked_child(void **state) {
    (void)state;
    child_run(fork_while_others_open, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_forked_child_touches_nothing_of_its_parents),
    cmocka_unit_test(the_end_of_a_forked_child_is_not_its_parents),
    cmocka_unit_test(a_child_forked_before_the_start_has_its_own_segment),
    cmocka_unit_test(a_lock_held_by_another_thread_does_not_stop_a_forked_child),
};

TESTING_MAIN(tests)
