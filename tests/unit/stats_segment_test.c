/* SPDX-License-Identifier: MIT
 *
 * The file behind the figures, as others see it: name, mode, contents, and its normal end.
 */
#include "support/testing.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "child.h"
#include "config/config.h"
#include "publisher.h"
#include "stats/writer.h"

static void check_appearance(mode_t mask) {
    struct publisher publisher = {.finish = true, .mask = mask};
    struct stat file;
    publisher_start(&publisher);
    assert_int_equal(lstat(publisher.path, &file), 0);
    assert_true(S_ISREG(file.st_mode));
    assert_int_equal(file.st_mode & 07777, 0600);
    assert_int_equal(file.st_uid, geteuid());
    assert_int_equal(file.st_size, sizeof(struct segment_storage));
    assert_in_range(file.st_size, 1, POOLCUDA_SHM_MAX_BYTES);
    assert_true(file.st_blocks * 512 >= file.st_size); /* allocated, not promised */
    publisher_end(&publisher);
    assert_false(shm_exists(publisher.path));
}

static void the_segment_has_its_name_size_owner_and_mode(void **state) {
    (void)state;
    shm_need();
    check_appearance(022);
}

static void the_mode_does_not_depend_on_the_umask(void **state) {
    (void)state;
    shm_need();
    check_appearance(0777);
    check_appearance(0);
}

static void the_header_says_who_and_what(void **state) {
    (void)state;
    static struct segment_storage storage;
    struct publisher publisher = {.finish = true};
    struct stat namespace;
    shm_need();
    const uint64_t before = segment_clock_ns();
    const time_t unix_before = time(NULL);
    publisher_start(&publisher);
    assert_true(shm_read(publisher.path, &storage));
    const struct poolcuda_header *header = &storage.header;
    assert_memory_equal(header->magic, "POOLCUDA", 8);
    assert_int_equal(header->version, 2);
    assert_int_equal(header->header_bytes, 640);
    assert_int_equal(header->total_bytes, sizeof storage);
    assert_int_equal(header->pid, publisher.child.pid);
    assert_int_equal(header->uid, geteuid());
    assert_true(header->start_ticks != 0);
    assert_int_equal(header->start_ticks, publisher.start);
    assert_int_equal(stat("/proc/self/ns/pid", &namespace), 0);
    assert_int_equal(header->pid_namespace, namespace.st_ino);
    assert_in_range(header->created_ns, before, segment_clock_ns());
    assert_in_range(header->created_unix_ns / 1000000000u, unix_before, time(NULL));
    assert_in_range(header->heartbeat_ns, before, segment_clock_ns());
    assert_int_equal(header->ended_ns, 0);
    assert_int_equal(header->state, POOLCUDA_RUNNING);
    assert_string_equal(header->library_version, POOLCUDA_VERSION);
    assert_string_equal(header->command, "unit_stats_segment");
    publisher_end(&publisher);
}

static void check_section(const struct poolcuda_section *section, size_t record, size_t count, uint64_t *end) {
    assert_int_equal(section->offset % 64, 0);
    assert_int_equal(section->stride % 64, 0);
    assert_int_equal(section->stride, record);
    assert_int_equal(section->count, count);
    assert_true(section->offset >= *end);
    *end = section->offset + (uint64_t)section->count * section->stride;
}

static void the_sections_lie_apart_inside_the_segment(void **state) {
    (void)state;
    static struct segment_storage storage;
    struct publisher publisher = {.finish = true};
    shm_need();
    publisher_start(&publisher);
    assert_true(shm_read(publisher.path, &storage));
    uint64_t end = storage.header.header_bytes;
    check_section(&storage.header.config, 128, config_variable_count(), &end);
    check_section(&storage.header.pools, 1408, 32, &end);
    check_section(&storage.header.cells, 2048, 160, &end);
    check_section(&storage.header.events, 128, 256, &end);
    check_section(&storage.header.fixed, 64, 128, &end);
    assert_true(end <= storage.header.total_bytes);
    publisher_end(&publisher);
}

static void the_configuration_in_force_is_published(void **state) {
    (void)state;
    static struct segment_storage storage;
    struct publisher publisher = {.finish = true};
    int found = 0;
    shm_need();
    publisher_start(&publisher);
    assert_true(shm_read(publisher.path, &storage));
    for (uint32_t i = 0; i < storage.header.config.count; i++) {
        const struct poolcuda_config_entry *entry = &storage.config[i];
        assert_string_equal(entry->name, config_variable_at(i)->name);
        if (strcmp(entry->name, "POOL_TRIM_MB") == 0) {
            assert_string_equal(entry->value, "9 MiB");
            assert_int_equal(entry->from_environment, 1);
            found++;
        } else {
            assert_int_equal(entry->from_environment, 0);
        }
        if (strcmp(entry->name, "POOL_LIMIT_MB") == 0) {
            assert_string_equal(entry->value, "none");
            found++;
        }
    }
    assert_int_equal(found, 2);
    publisher_end(&publisher);
}

static void a_normal_end_is_marked_and_the_file_unlinked(void **state) {
    (void)state;
    struct publisher publisher = {.finish = true};
    shm_need();
    publisher_start(&publisher);
    const int fd = open(publisher.path, O_RDONLY | O_CLOEXEC);
    const struct poolcuda_header *header = mmap(NULL, sizeof *header, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(header, MAP_FAILED);
    close(fd);
    assert_int_equal(header->state, POOLCUDA_RUNNING);
    publisher_proceed(&publisher);
    publisher_await(&publisher);
    assert_int_equal(header->state, POOLCUDA_ENDED);
    assert_in_range(header->ended_ns, header->created_ns, segment_clock_ns());
    assert_false(shm_exists(publisher.path));
    munmap((void *)(uintptr_t)header, sizeof *header);
    publisher_proceed(&publisher);
    publisher_close(&publisher);
    child_judge(&publisher.child);
}

static void two_processes_have_a_segment_each(void **state) {
    (void)state;
    struct publisher one = {.finish = true}, other = {.finish = true};
    shm_need();
    publisher_start(&one);
    publisher_start(&other);
    assert_string_not_equal(one.path, other.path);
    assert_true(shm_exists(one.path));
    assert_true(shm_exists(other.path));
    publisher_end(&one);
    assert_true(shm_exists(other.path));
    publisher_end(&other);
    assert_false(shm_exists(other.path));
}

static int start_switched_off(void *arg) {
    (void)arg;
    char path[PATH_MAX];
    stats_start(false);
    shm_path_of(path, getpid());
    CHECK(!shm_exists(path), "%s is there\n", path);
    stats_start(true);
    CHECK(!shm_exists(path), "%s came later\n", path);
    return 0;
}

static void figures_that_are_switched_off_make_no_file(void **state) {
    (void)state;
    assert_string_equal(child_run(start_switched_off, NULL), "");
}

static void *start_in_thread(void *arg) {
    pthread_barrier_wait(arg);
    stats_start(true);
    return stats_header();
}

static int start_in_threads(void *arg) {
    (void)arg;
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    const int before = open_descriptors();
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, start_in_thread, &barrier);
    for (int i = 0; i < THREADS; i++) {
        void *header;
        pthread_join(threads[i], &header);
        CHECK(header == stats_header(), "a thread went on before the segment was there\n");
    }
    CHECK_EQUAL(open_descriptors(), before);
    stats_finish();
    stats_finish();
    return 0;
}

static void threads_that_start_together_share_one_segment(void **state) {
    (void)state;
    child_run(start_in_threads, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_segment_has_its_name_size_owner_and_mode),
    cmocka_unit_test(the_mode_does_not_depend_on_the_umask),
    cmocka_unit_test(the_header_says_who_and_what),
    cmocka_unit_test(the_sections_lie_apart_inside_the_segment),
    cmocka_unit_test(the_configuration_in_force_is_published),
    cmocka_unit_test(a_normal_end_is_marked_and_the_file_unlinked),
    cmocka_unit_test(two_processes_have_a_segment_each),
    cmocka_unit_test(figures_that_are_switched_off_make_no_file),
    cmocka_unit_test(threads_that_start_together_share_one_segment),
};

TESTING_MAIN(tests)
