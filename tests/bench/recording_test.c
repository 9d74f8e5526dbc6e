/* SPDX-License-Identifier: MIT
 *
 * The reader of recordings (bench/recording.h, and bench/trace.h over it): what it makes of whole ones, of cut off ones
 * and of such as nobody has written. Those of the library are read in unit/trace.
 */
#include "testing.h"

#include <stdlib.h>
#include <unistd.h>

#include "recording.h"
#include "trace.h"

/* ---- recordings made by hand ---- */

enum { IMAGE_BYTES = 4096, SHIFT = 4 };

struct image {
    unsigned char bytes[IMAGE_BYTES];
    size_t size, block_at; /* the open block's head; 0: none */
    uint64_t blocks;
};

static void image_begin(struct image *image) {
    const struct poolcuda_trace_header header = {
        .magic = POOLCUDA_TRACE_MAGIC,
        .version = POOLCUDA_TRACE_VERSION,
        .header_bytes = sizeof header,
        .pid = 41,
        .counter = POOLCUDA_TRACE_TSC,
        .time_shift = SHIFT,
        .begin = {.counter = 1000000, .ns = 500},
        .command = "guest",
    };
    *image = (struct image){.size = sizeof header};
    memcpy(image->bytes, &header, sizeof header);
}

static void put(struct image *image, const void *data, size_t size) {
    assert_true(image->size + size <= sizeof image->bytes);
    memcpy(image->bytes + image->size, data, size);
    image->size += size;
}

/* The counter goes twice as fast as nanoseconds. */
static void block_begin(struct image *image, uint32_t thread, uint64_t base, uint32_t flags, uint64_t lost) {
    const struct poolcuda_trace_block head = {
        .magic = POOLCUDA_TRACE_BLOCK_MAGIC,
        .bytes = sizeof head,
        .number = image->blocks++,
        .base = base,
        .end = {.counter = 3000000, .ns = 1000500},
        .thread = thread,
        .flags = flags,
        .lost = lost,
    };
    image->block_at = image->size;
    put(image, &head, sizeof head);
}

static void put_record(struct image *image, const void *data, size_t size) {
    struct poolcuda_trace_block head;
    put(image, data, size);
    memcpy(&head, image->bytes + image->block_at, sizeof head);
    head.bytes = (uint32_t)(image->size - image->block_at);
    memcpy(image->bytes + image->block_at, &head, sizeof head);
}

static uint64_t word(enum poolcuda_trace_kind kind, uint64_t time, uint64_t place) {
    return time | (uint64_t)kind << POOLCUDA_TRACE_KIND_SHIFT | place << POOLCUDA_TRACE_PLACE_SHIFT;
}

static void put_place(struct image *image, uint64_t number, uint64_t first, uint64_t stream) {
    const struct poolcuda_trace_place place = {
        .word = word(POOLCUDA_TRACE_PLACE, 0, number),
        .first = first,
        .stream = stream,
        .where = {.device = 1, .memory = POOLCUDA_TRACE_ASYNC, .stream_kind = POOLCUDA_TRACE_STREAM_ID},
    };
    put_record(image, &place, sizeof place);
}

static void put_hit(struct image *image, uint64_t time, uint64_t place, uint64_t ahead, uint64_t address,
                    uint64_t size) {
    const uint64_t unit = address / 512;
    const uint64_t words[] = {word(POOLCUDA_TRACE_HIT, time, place) | unit >> 32 << 40 | ahead << 48,
                              size | unit << 32};
    put_record(image, words, sizeof words);
}

static void put_free(struct image *image, uint64_t time, uint64_t place, uint64_t number) {
    const uint64_t words[] = {word(POOLCUDA_TRACE_FREE, time, place) | number << (64 - POOLCUDA_TRACE_FREE_BITS)};
    put_record(image, words, sizeof words);
}

static void put_call(struct image *image, uint64_t time, enum poolcuda_trace_operation operation, uint64_t number,
                     uint64_t address, uint64_t size, uint16_t code) {
    const struct poolcuda_trace_call call = {
        .word = word(POOLCUDA_TRACE_CALL, time, 0),
        .address = address,
        .size = size,
        .number = number,
        .device = -1,
        .code = code,
        .operation = operation,
        .served = POOLCUDA_TRACE_BY_DRIVER,
    };
    put_record(image, &call, sizeof call);
}

static void read_image(const struct image *image, struct recording *recording) {
    char error[512];
    if (!recording_read("image", image->bytes, image->size, recording, error, sizeof error)) fail_msg("%s", error);
}

/* Two threads: one allocates two blocks, the other frees one of them. */
static void make_good(struct image *image) {
    image_begin(image);
    block_begin(image, 51, 1000000, 0, 0);
    put_place(image, 7, UINT64_C(3) << 40, 9);
    put_hit(image, 0, 7, 5, UINT64_C(0x7f1234567800), 100);
    put_hit(image, 1000, 7, 6, 512, UINT32_MAX);
    block_begin(image, 52, 1016000, POOLCUDA_TRACE_LAST, 0);
    put_place(image, 63, (UINT64_C(3) << 40) + 100, 10);
    put_free(image, 500, 63, (UINT64_C(3) << 40) + 5);
}

/* ---- whole ones ---- */

static void threads_are_merged_and_a_free_knows_its_address(void **state) {
    (void)state;
    struct image image;
    struct recording recording;
    make_good(&image);
    read_image(&image, &recording);
    assert_string_equal(recording.note, "");
    assert_string_equal(recording.header.command, "guest");
    assert_int_equal(recording.count, 3);
    const struct recorded *calls = recording.calls;
    assert_int_equal(calls[0].address, 0x7f1234567800);
    assert_int_equal(calls[0].size, 100);
    assert_int_equal(calls[0].number, (UINT64_C(3) << 40) + 5);
    assert_int_equal(calls[0].stream, 9);
    assert_int_equal(calls[0].device, 1);
    assert_int_equal(calls[0].memory, POOLCUDA_TRACE_ASYNC);
    assert_int_equal(calls[0].thread, 51);
    assert_int_equal(calls[0].ns, 0);
    assert_int_equal(calls[1].size, UINT32_MAX);
    assert_int_equal(calls[1].address, 512);
    assert_int_equal(calls[1].ns, 1000 * 16 / 2);
    assert_int_equal(calls[2].operation, POOLCUDA_TRACE_RELEASE);
    assert_int_equal(calls[2].number, (UINT64_C(3) << 40) + 5);
    assert_int_equal(calls[2].address, 0x7f1234567800);
    assert_int_equal(calls[2].stream, 10);
    assert_int_equal(calls[2].thread, 52);
    assert_int_equal(calls[2].ns, (16000 + 500 * 16) / 2);
    recording_free(&recording);
}

static void numbers_of_frees_are_near_the_places_first_on_both_sides(void **state) {
    (void)state;
    const uint64_t half = UINT64_C(1) << (POOLCUDA_TRACE_FREE_BITS - 1), first = (UINT64_C(2) << 40) + half + 77;
    const uint64_t numbers[] = {first, first - half, first + half - 1, first - 1, first + 1};
    struct image image;
    struct recording recording;
    image_begin(&image);
    block_begin(&image, 1, 1000000, POOLCUDA_TRACE_LAST, 0);
    put_place(&image, 0, first, 1);
    for (int i = 0; i < 5; i++) put_free(&image, (uint64_t)i, 0, numbers[i]);
    read_image(&image, &recording);
    assert_int_equal(recording.count, 5);
    for (int i = 0; i < 5; i++) assert_int_equal(recording.calls[i].number, numbers[i]);
    recording_free(&recording);
}

static void an_allocation_that_seems_later_than_its_free_goes_before_it(void **state) {
    (void)state;
    struct image image;
    struct recording recording;
    image_begin(&image);
    block_begin(&image, 1, 1000000, 0, 0);
    put_place(&image, 0, 700, 1);
    put_hit(&image, 30, 0, 0, 512, 8);
    block_begin(&image, 2, 1000000, POOLCUDA_TRACE_LAST, 0);
    put_place(&image, 0, 700, 1);
    put_call(&image, 10, POOLCUDA_TRACE_ALLOC, 0, 4096, 5, 0);
    put_free(&image, 20, 0, 700);
    read_image(&image, &recording);
    assert_int_equal(recording.count, 3);
    assert_int_equal(recording.calls[0].number, 0);
    assert_int_equal(recording.calls[1].operation, POOLCUDA_TRACE_ALLOC);
    assert_int_equal(recording.calls[1].number, 700);
    assert_int_equal(recording.calls[2].operation, POOLCUDA_TRACE_RELEASE);
    recording_free(&recording);
}

/* ---- what is missing ---- */

static void what_is_missing_is_said(void **state) {
    (void)state;
    struct image image;
    struct recording recording;
    image_begin(&image);
    block_begin(&image, 1, 1000000, 0, 17);
    put(&image, "torn", 4);
    read_image(&image, &recording);
    assert_string_equal(
        recording.note,
        "4 bytes after the last whole block were dropped; the process was killed, its disk was full, or "
        "it still runs: the last calls of each of its threads are missing; 17 calls could not be "
        "recorded");
    recording_free(&recording);
}

static void a_recording_that_is_cut_off_anywhere_is_read_as_far_as_it_goes(void **state) {
    (void)state;
    struct image image;
    struct recording recording;
    make_good(&image);
    const size_t size = image.size;
    for (image.size = sizeof(struct poolcuda_trace_header); image.size < size; image.size++) {
        read_image(&image, &recording);
        assert_int_equal(recording.count, image.size < image.block_at ? 0 : 2);
        if (image.size == image.block_at || image.size == sizeof(struct poolcuda_trace_header))
            assert_null(strstr(recording.note, "dropped"));
        else
            assert_non_null(strstr(recording.note, "bytes after the last whole block were dropped"));
        assert_non_null(strstr(recording.note, "was killed"));
        recording_free(&recording);
    }
}

static void expect_refused(const struct image *image, const char *expected) {
    struct recording recording;
    char error[512] = "";
    if (recording_read("image", image->bytes, image->size, &recording, error, sizeof error))
        fail_msg("read, expected: %s", expected);
    assert_string_equal(error, expected);
}

static void a_header_that_is_cut_off_or_of_another_version_is_refused(void **state) {
    (void)state;
    struct image image;
    make_good(&image);
    image.size = sizeof(struct poolcuda_trace_header) - 1;
    expect_refused(&image, "image: a recording of 255 bytes: expected at least its header of 256");
    make_good(&image);
    image.bytes[8] = 2;
    expect_refused(&image, "image: a recording of version 2: expected 1");
}

/* ---- what nobody writes ---- */

static void expect_no_call(const struct image *image) {
    struct recording recording;
    read_image(image, &recording);
    assert_int_equal(recording.count, 0);
    assert_non_null(strstr(recording.note, "bytes after the last whole block were dropped"));
    recording_free(&recording);
}

static void begin_bad(struct image *image) {
    image_begin(image);
    block_begin(image, 1, 1000000, 0, 0);
    put_place(image, 3, 5, 1);
    put_hit(image, 0, 3, 0, 512, 8);
}

static void a_block_with_a_record_that_makes_no_sense_is_dropped_whole(void **state) {
    (void)state;
    struct image image;
    begin_bad(&image);
    put_hit(&image, 1, 4, 0, 512, 8); /* a place that was not told of */
    expect_no_call(&image);
    begin_bad(&image);
    put_record(&image, &(uint64_t){word(0, 1, 3)}, 8); /* no kind */
    expect_no_call(&image);
    begin_bad(&image);
    put_record(&image, &(uint64_t){word(POOLCUDA_TRACE_HIT, 1, 3)}, 8); /* half a record */
    expect_no_call(&image);
    begin_bad(&image);
    put_call(&image, 1, 3, 1, 512, 8, 0); /* no operation */
    expect_no_call(&image);
}

static void set_head(struct image *image, size_t offset, uint32_t value) {
    memcpy(image->bytes + image->block_at + offset, &value, sizeof value);
}

static void heads_that_make_no_sense_end_the_recording(void **state) {
    (void)state;
    const struct {
        size_t offset;
        uint32_t value;
    } table[] = {
        {offsetof(struct poolcuda_trace_block, magic), 1},
        {offsetof(struct poolcuda_trace_block, bytes), 0},
        {offsetof(struct poolcuda_trace_block, bytes), 63},
        {offsetof(struct poolcuda_trace_block, bytes), UINT32_MAX},
        {offsetof(struct poolcuda_trace_block, bytes), 65537},
        {offsetof(struct poolcuda_trace_block, bytes), 100},
        {offsetof(struct poolcuda_trace_block, number), 1},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct image image;
        begin_bad(&image);
        set_head(&image, table[i].offset, table[i].value);
        expect_no_call(&image);
    }
}

static uint64_t random_state = 0x9e3779b97f4a7c15;

static uint64_t random_number(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Whatever is read makes a trace that pairs its frees. */
static void expect_some_trace(const struct image *image) {
    char path[] = "/tmp/poolcuda-recording-XXXXXX", error[512] = "";
    struct trace trace;
    const int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, image->bytes, image->size), image->size);
    close(file);
    if (trace_read(path, &trace, error, sizeof error)) {
        size_t live = 0;
        for (size_t i = 0; i < trace.count; i++) {
            assert_true(trace.events[i].block < trace.blocks);
            live += trace.events[i].op == TRACE_ALLOC;
            live -= trace.events[i].op == TRACE_FREE;
        }
        assert_int_equal(live, trace.live_at_end);
        trace_free(&trace);
    } else {
        assert_string_not_equal(error, "");
    }
    unlink(path);
}

static void damaged_recordings_are_read_or_refused(void **state) {
    (void)state;
    enum { ROUNDS = 3000 };
    for (int round = 0; round < ROUNDS; round++) {
        struct image image;
        make_good(&image);
        for (uint64_t n = random_number() % 8 + 1; n > 0; n--)
            image.bytes[8 + random_number() % (image.size - 8)] = (unsigned char)random_number();
        if (round % 3 == 0) image.size -= random_number() % image.size;
        if (recording_is_one(image.bytes, image.size)) expect_some_trace(&image);
    }
}

/* ---- as a trace ---- */

static void read_trace(const struct image *image, struct trace *trace) {
    char path[] = "/tmp/poolcuda-recording-XXXXXX", error[512] = "";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, image->bytes, image->size), image->size);
    close(file);
    const bool read = trace_read(path, trace, error, sizeof error);
    unlink(path);
    if (!read) fail_msg("not read: %s", error);
}

static void expect_event(const struct trace *trace, size_t index, enum trace_op op, uint32_t block, uint64_t size,
                         uint64_t thread) {
    assert_true(index < trace->count);
    const struct trace_event *event = &trace->events[index];
    assert_int_equal(event->seq, index);
    assert_int_equal(event->op, op);
    assert_int_equal(event->block, block);
    assert_int_equal(event->size, size);
    assert_int_equal(event->thread, thread);
}

static void a_recording_is_a_trace(void **state) {
    (void)state;
    struct image image;
    struct trace trace;
    make_good(&image);
    read_trace(&image, &trace);
    assert_string_equal(trace.note, "");
    assert_int_equal(trace.count, 3);
    expect_event(&trace, 0, TRACE_ALLOC, 0, 100, 51);
    expect_event(&trace, 1, TRACE_ALLOC, 1, UINT32_MAX, 51);
    expect_event(&trace, 2, TRACE_FREE, 0, 100, 52);
    assert_int_equal(trace.events[1].t_us, 8);
    assert_int_equal(trace.lanes, 2);
    assert_int_equal(trace.events[2].stream, 10);
    assert_int_equal(trace.live_at_end, 1);
    assert_int_equal(trace.peak_bytes, UINT64_C(100) + UINT32_MAX);
    trace_free(&trace);
}

static void calls_that_failed_are_no_events(void **state) {
    (void)state;
    struct image image;
    struct trace trace;
    image_begin(&image);
    block_begin(&image, 1, 1000000, POOLCUDA_TRACE_LAST, 0);
    put_call(&image, 0, POOLCUDA_TRACE_ALLOC, 0, 0, 1000, 2);
    put_call(&image, 1, POOLCUDA_TRACE_ALLOC, 0, 4096, 1000, 0);
    put_call(&image, 2, POOLCUDA_TRACE_RELEASE, 0, 4096, 0, 1);
    put_call(&image, 3, POOLCUDA_TRACE_RELEASE, 0, 0, 0, 0);
    put_call(&image, 4, POOLCUDA_TRACE_RELEASE, 0, 4096, 0, 0);
    read_trace(&image, &trace);
    assert_string_equal(trace.note, "");
    assert_int_equal(trace.count, 2);
    expect_event(&trace, 0, TRACE_ALLOC, 0, 1000, 1);
    expect_event(&trace, 1, TRACE_FREE, 0, 1000, 1);
    trace_free(&trace);
}

static void memory_of_the_driver_that_comes_again_was_freed_before(void **state) {
    (void)state;
    struct image image;
    struct trace trace;
    image_begin(&image);
    block_begin(&image, 1, 1000000, POOLCUDA_TRACE_LAST, 0);
    put_call(&image, 0, POOLCUDA_TRACE_ALLOC, 0, 4096, 1000, 0);
    put_call(&image, 1, POOLCUDA_TRACE_ALLOC, 0, 4096, 2000, 0);
    read_trace(&image, &trace);
    assert_int_equal(trace.count, 3);
    expect_event(&trace, 0, TRACE_ALLOC, 0, 1000, 1);
    expect_event(&trace, 1, TRACE_FREE, 0, 1000, 1);
    expect_event(&trace, 2, TRACE_ALLOC, 1, 2000, 1);
    assert_int_equal(trace.peak_bytes, 2000);
    trace_free(&trace);
}

static void what_does_not_fit_together_is_left_out_and_said(void **state) {
    (void)state;
    struct image image;
    struct trace trace;
    image_begin(&image);
    block_begin(&image, 1, 1000000, POOLCUDA_TRACE_LAST, 0);
    put_call(&image, 0, POOLCUDA_TRACE_ALLOC, 5, 4096, 1000, 0);
    put_call(&image, 1, POOLCUDA_TRACE_ALLOC, 5, 8192, 1000, 0);
    put_call(&image, 2, POOLCUDA_TRACE_RELEASE, 6, 0, 0, 0);
    put_call(&image, 3, POOLCUDA_TRACE_RELEASE, 0, 512, 0, 0);
    read_trace(&image, &trace);
    assert_int_equal(trace.count, 1);
    assert_string_equal(trace.note,
                        "2 frees are of memory whose allocation is not in it; 1 allocations make no sense, and "
                        "were dropped");
    trace_free(&trace);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(threads_are_merged_and_a_free_knows_its_address),
    cmocka_unit_test(numbers_of_frees_are_near_the_places_first_on_both_sides),
    cmocka_unit_test(an_allocation_that_seems_later_than_its_free_goes_before_it),
    cmocka_unit_test(what_is_missing_is_said),
    cmocka_unit_test(a_recording_that_is_cut_off_anywhere_is_read_as_far_as_it_goes),
    cmocka_unit_test(a_header_that_is_cut_off_or_of_another_version_is_refused),
    cmocka_unit_test(a_block_with_a_record_that_makes_no_sense_is_dropped_whole),
    cmocka_unit_test(heads_that_make_no_sense_end_the_recording),
    cmocka_unit_test(damaged_recordings_are_read_or_refused),
    cmocka_unit_test(a_recording_is_a_trace),
    cmocka_unit_test(calls_that_failed_are_no_events),
    cmocka_unit_test(memory_of_the_driver_that_comes_again_was_freed_before),
    cmocka_unit_test(what_does_not_fit_together_is_left_out_and_said),
};

TESTING_MAIN(tests)
