/* SPDX-License-Identifier: MIT
 *
 * Copies of a segment whose owner writes at the worst moments: it acts between two words of one read. Time passes when
 * a case says so.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "testing.h"

#include "poolstat/segment.h"

#define MIB (UINT64_C(1) << 20)
#define CELLS 3u
#define CLASS 13u

struct image {
    struct poolcuda_header header;
    struct poolcuda_pool pool;
    struct poolcuda_cell cells[CELLS];
};

/* What the owner does once a word has been read, with the word's place in the file. */
typedef void owner_acts(uint64_t offset);

static int file;
static struct image *image;
static owner_acts *owner;
static bool acted, backwards;
static long now_ns, step_ns;

ssize_t __real_pread64(int fd, void *to, size_t size, off_t offset); /* NOLINT(bugprone-reserved-identifier) */
ssize_t __wrap_pread64(int fd, void *to, size_t size, off_t offset); /* NOLINT(bugprone-reserved-identifier) */

ssize_t __wrap_pread64(int fd, void *to, size_t size, off_t offset) { /* NOLINT(bugprone-reserved-identifier) */
    const size_t word = sizeof(uint64_t), words = (size + word - 1) / word;
    for (size_t i = 0; fd == file && i < words; i++) {
        const size_t at = (backwards ? words - 1 - i : i) * word, piece = size - at < word ? size - at : word;
        if (__real_pread64(fd, (char *)to + at, piece, offset + (off_t)at) != (ssize_t)piece) return -1;
        if (owner != NULL) owner((uint64_t)offset + at);
    }
    return fd == file ? (ssize_t)size : __real_pread64(fd, to, size, offset);
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *now); /* NOLINT(bugprone-reserved-identifier) */

int __wrap_clock_gettime(clockid_t clock, struct timespec *now) { /* NOLINT(bugprone-reserved-identifier) */
    (void)clock;
    *now = (struct timespec){.tv_sec = 1, .tv_nsec = now_ns += step_ns};
    return 0;
}

static struct poolcuda_section section(size_t offset, uint32_t count, size_t stride) {
    return (struct poolcuda_section){.offset = (uint32_t)offset, .count = count, .stride = (uint32_t)stride};
}

/* Reserved 64 MiB = live 8 + idle 56, of which the first cell keeps 4 and the second 6. The third is nobody's. */
static int make_segment(void **state) {
    (void)state;
    file = memfd_create("segment", MFD_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, sizeof(*image)), 0);
    image = mmap(NULL, sizeof(*image), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert_ptr_not_equal(image, MAP_FAILED);
    image->header = (struct poolcuda_header){.version = POOLCUDA_LAYOUT_VERSION,
                                             .header_bytes = sizeof(image->header),
                                             .total_bytes = sizeof(*image),
                                             .state = POOLCUDA_RUNNING};
    memcpy(image->header.magic, POOLCUDA_MAGIC, sizeof(image->header.magic));
    image->header.pools = section(offsetof(struct image, pool), 1, sizeof(image->pool));
    image->header.cells = section(offsetof(struct image, cells), CELLS, sizeof(image->cells[0]));
    image->pool = (struct poolcuda_pool){.state = POOLCUDA_POOL_OPEN,
                                         .kind = POOLCUDA_KIND_PLAIN,
                                         .generation = 1,
                                         .reserved_bytes = 64 * MIB,
                                         .idle_bytes = 46 * MIB};
    image->cells[0].pool = image->cells[1].pool = 1;
    image->cells[0].classes[CLASS] = (struct poolcuda_size_class){.alloc_bytes = 8 * MIB, .held_bytes = 12 * MIB};
    image->cells[1].classes[CLASS].held_bytes = 6 * MIB;
    acted = backwards = false;
    owner = NULL;
    step_ns = now_ns = 0;
    return 0;
}

static int remove_segment(void **state) {
    (void)state;
    munmap(image, sizeof(*image));
    close(file);
    return 0;
}

static struct segment *copy(void) {
    struct segment *segment;
    char why[SEGMENT_WHY_SIZE];
    assert_int_equal(segment_read(file, &segment, why), SEGMENT_READ);
    assert_int_equal(segment->pool_count, 1);
    return segment;
}

static void expect_consistent(size_t cells) {
    struct segment *segment = copy();
    const struct segment_pool *pool = &segment->pools[0];
    uint64_t held = pool->record.idle_bytes;
    assert_true(acted);
    assert_false(pool->approximate);
    assert_int_equal(pool->cell_count, cells);
    for (size_t i = 0; i < cells; i++) held += pool->cells[i].classes[CLASS].held_bytes;
    assert_int_equal(held, pool->record.reserved_bytes);
    segment_free(segment);
}

/* Once, when `offset` is that of the word after which it is to be. */
static bool is_time(uint64_t offset, const void *word) {
    if (acted || offset != (uint64_t)((const char *)word - (const char *)image)) return false;
    return acted = true;
}

static void move(uint64_t *from_sequence, uint64_t *from, uint64_t *to_sequence, uint64_t *to) {
    *from_sequence += 2;
    *to_sequence += 2;
    *from -= MIB;
    *to += MIB;
}

static void move_between_cells(uint64_t offset) {
    struct poolcuda_cell *one = &image->cells[0], *other = &image->cells[1];
    static bool found; /* which cells there are is asked before */
    if (offset == offsetof(struct image, pool)) found = true;
    if (!found || !is_time(offset, &one->classes[CLASS].held_bytes)) return;
    found = false;
    move(&other->sequence, &other->classes[CLASS].held_bytes, &one->sequence, &one->classes[CLASS].held_bytes);
}

static void what_moves_between_cells_is_copied_again(void **state) {
    (void)state;
    owner = move_between_cells;
    expect_consistent(2);
}

static void begin_and_end_a_write(uint64_t offset) {
    struct poolcuda_cell *one = &image->cells[0];
    static unsigned looks;
    if (offset != offsetof(struct image, cells) + offsetof(struct poolcuda_cell, sequence)) return;
    looks++;
    if (looks == 1) { /* known as the pool's */
        image->pool.idle_bytes -= MIB;
        one->sequence++;
    } else if (looks == 6) { /* seen to be odd often enough to pass for unchanged */
        one->classes[CLASS].held_bytes += MIB;
        one->sequence++;
        acted = true;
    }
}

static void what_is_in_the_midst_of_a_write_is_waited_for(void **state) {
    (void)state;
    owner = begin_and_end_a_write;
    expect_consistent(2);
}

/* Of what joins no sequence tells that has been looked at before. */
static void join(uint64_t offset) {
    struct poolcuda_cell *cell = &image->cells[2];
    if (!is_time(offset, &cell->pool)) return;
    cell->pool = 1;
    move(&image->pool.sequence, &image->pool.idle_bytes, &cell->sequence, &cell->classes[CLASS].held_bytes);
}

static void a_cell_that_joins_is_copied_too(void **state) {
    (void)state;
    owner = join;
    expect_consistent(3);
}

/* The owner raises the end before the cell is in use. Where the end is looked at, nothing beyond it is copied. */
static void join_at_the_end(uint64_t offset) {
    struct poolcuda_cell *cell = &image->cells[2];
    if (!is_time(offset, &image->pool.sequence)) return;
    image->header.cells.end = 3;
    cell->pool = 1;
    move(&image->pool.sequence, &image->pool.idle_bytes, &cell->sequence, &cell->classes[CLASS].held_bytes);
}

static void a_cell_that_joins_beyond_the_end_is_copied_too(void **state) {
    (void)state;
    image->header.cells.end = 2;
    owner = join_at_the_end;
    expect_consistent(3);
}

static void what_lies_beyond_the_end_is_not_copied(void **state) {
    (void)state;
    image->header.cells.end = 2;
    image->cells[2].pool = 1; /* what no owner does */
    acted = true;
    expect_consistent(2);
    image->header.cells.end = CELLS + 100; /* more than there are */
    image->cells[2].pool = 0;
    expect_consistent(2);
}

static void allocate_and_free(uint64_t offset) {
    struct poolcuda_cell *cell = &image->cells[0];
    (void)offset;
    cell->sequence += 2;
    cell->alloc_requested_bytes += MIB;
    cell->classes[CLASS].allocs++;
    cell->classes[CLASS].alloc_bytes += MIB;
    cell->freed_requested_bytes += MIB;
    cell->classes[CLASS].frees++;
    cell->classes[CLASS].freed_bytes += MIB;
    cell->classes[CLASS].misses++;
    cell->driver_door += 2;
}

static void expect_never_negative(void) {
    owner = allocate_and_free;
    step_ns = 100000;
    struct segment *segment = copy();
    const struct segment_pool *pool = &segment->pools[0];
    const struct poolcuda_cell *cell = &pool->cells[0];
    const struct poolcuda_size_class *class = &cell->classes[CLASS];
    assert_true(pool->approximate);
    assert_int_equal(pool->cell_count, 2);
    assert_true(class->alloc_bytes >= class->freed_bytes + 8 * MIB);
    assert_true(class->allocs >= class->frees);
    assert_true(class->allocs >= class->misses);
    assert_true(class->allocs + class->frees >= cell->driver_door);
    assert_true(cell->alloc_requested_bytes >= cell->freed_requested_bytes);
    assert_true(class->alloc_bytes - class->freed_bytes <= class->held_bytes);
    assert_true(cell->alloc_requested_bytes - cell->freed_requested_bytes <= class->alloc_bytes - class->freed_bytes);
    segment_free(segment);
}

static void what_never_rests_is_approximate_and_never_negative(void **state) {
    (void)state;
    expect_never_negative();
}

/* Nobody promises in which order the words of one read are taken. */
static void nor_is_it_when_the_last_word_is_read_first(void **state) {
    (void)state;
    backwards = true;
    expect_never_negative();
}

/* What a cell has of one state is no more than what it has in all, whatever a copy that is not of one moment says. */
static void what_does_not_add_up_is_bounded(void **state) {
    struct poolcuda_cell *one = &image->cells[0];
    (void)state;
    one->alloc_requested_bytes = 11 * MIB;
    one->classes[CLASS].alloc_bytes = 10 * MIB;
    one->waiting_bytes = 3 * MIB;
    struct segment *segment = copy();
    const struct segment_pool *pool = &segment->pools[0];
    assert_true(pool->approximate);
    assert_int_equal(pool->cells[0].alloc_requested_bytes, 10 * MIB);
    assert_int_equal(pool->cells[0].waiting_bytes, 2 * MIB);
    segment_free(segment);
    one->alloc_requested_bytes = 10 * MIB;
    one->waiting_bytes = 2 * MIB;
    segment = copy();
    assert_false(segment->pools[0].approximate);
    segment_free(segment);
    one->alloc_requested_bytes++;
    segment = copy();
    assert_true(segment->pools[0].approximate);
    assert_int_equal(segment->pools[0].cells[0].alloc_requested_bytes, 10 * MIB);
    segment_free(segment);
    one->alloc_requested_bytes = 0;
    one->classes[CLASS].alloc_bytes = 13 * MIB;
    segment = copy();
    assert_true(segment->pools[0].approximate);
    assert_int_equal(segment->pools[0].cells[0].classes[CLASS].alloc_bytes, 12 * MIB);
    assert_int_equal(segment->pools[0].cells[0].waiting_bytes, 0);
    segment_free(segment);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_segment, remove_segment)
static const struct CMUnitTest tests[] = {
    CASE(what_moves_between_cells_is_copied_again),
    CASE(what_is_in_the_midst_of_a_write_is_waited_for),
    CASE(a_cell_that_joins_is_copied_too),
    CASE(a_cell_that_joins_beyond_the_end_is_copied_too),
    CASE(what_lies_beyond_the_end_is_not_copied),
    CASE(what_never_rests_is_approximate_and_never_negative),
    CASE(nor_is_it_when_the_last_word_is_read_first),
    CASE(what_does_not_add_up_is_bounded),
};

TESTING_MAIN(tests)
