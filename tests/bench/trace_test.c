/* SPDX-License-Identifier: MIT
 *
 * The reader of allocation traces (bench/trace.h): what it makes of good ones, and what it says of each kind of bad
 * one.
 */
#include "testing.h"

#include <stdlib.h>
#include <unistd.h>

#include <lzma.h>

#include "trace.h"

#define HEADER "seq,op,id,size,stream,thread,t_us\n"

static char path[64];

/* Put the bytes into a new file; `path` names it until file_remove. */
static void file_write(const void *bytes, size_t size) {
    strcpy(path, "/tmp/poolcuda-trace-XXXXXX");
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, bytes, size), size);
    close(file);
}

static void file_remove(void) {
    unlink(path);
}

static void read_good(const void *bytes, size_t size, struct trace *trace) {
    char error[512] = "";
    file_write(bytes, size);
    bool read = trace_read(path, trace, error, sizeof error);
    file_remove();
    if (!read) fail_msg("not read: %s", error);
}

/* The complaint is the file's name followed by `expected`. */
static void expect_complaint(const void *bytes, size_t size, const char *expected) {
    char error[512] = "", whole[512];
    struct trace trace;
    file_write(bytes, size);
    bool read = trace_read(path, &trace, error, sizeof error);
    file_remove();
    if (read) {
        trace_free(&trace);
        fail_msg("read, but expected a complaint: %s", expected);
    }
    snprintf(whole, sizeof whole, "%s%s", path, expected);
    assert_string_equal(error, whole);
}

static void expect_complaint_of_text(const char *text, const char *expected) {
    expect_complaint(text, strlen(text), expected);
}

static void frees_are_paired_with_their_allocations(void **state) {
    (void)state;
    static const char text[] = HEADER "0,a,7,100,3,41,5\n"
                                      "1,a,8,50,0,42,6\n"
                                      "2,f,7,100,3,41,7\n"
                                      "9,a,7,20,0,42,8\n"
                                      "10,f,8,0,0,41,9\n";
    static const struct trace_event expected[] = {
        {.seq = 0, .size = 100, .stream = 3, .thread = 41, .t_us = 5, .block = 0, .op = TRACE_ALLOC},
        {.seq = 1, .size = 50, .stream = 0, .thread = 42, .t_us = 6, .block = 1, .op = TRACE_ALLOC},
        {.seq = 2, .size = 100, .stream = 3, .thread = 41, .t_us = 7, .block = 0, .op = TRACE_FREE},
        {.seq = 9, .size = 20, .stream = 0, .thread = 42, .t_us = 8, .block = 2, .op = TRACE_ALLOC},
        {.seq = 10, .size = 50, .stream = 0, .thread = 41, .t_us = 9, .block = 1, .op = TRACE_FREE},
    };
    struct trace trace;
    read_good(text, sizeof text - 1, &trace);
    assert_int_equal(trace.count, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(trace.events[i].seq, expected[i].seq);
        assert_int_equal(trace.events[i].size, expected[i].size);
        assert_int_equal(trace.events[i].stream, expected[i].stream);
        assert_int_equal(trace.events[i].lane, expected[i].stream == 3 ? 0 : 1);
        assert_int_equal(trace.events[i].thread, expected[i].thread);
        assert_int_equal(trace.events[i].t_us, expected[i].t_us);
        assert_int_equal(trace.events[i].block, expected[i].block);
        assert_int_equal(trace.events[i].op, expected[i].op);
    }
    assert_int_equal(trace.blocks, 3);
    assert_int_equal(trace.lanes, 2);
    assert_int_equal(trace.peak_bytes, 150);
    assert_int_equal(trace.peak_event, 1);
    assert_int_equal(trace.live_at_end, 1);
    trace_free(&trace);
}

static void header_alone_is_a_trace_without_events(void **state) {
    (void)state;
    struct trace trace;
    read_good(HEADER, strlen(HEADER), &trace);
    assert_int_equal(trace.count, 0);
    assert_int_equal(trace.live_at_end, 0);
    trace_free(&trace);
}

static void last_line_may_lack_its_end_and_lines_may_end_as_on_windows(void **state) {
    (void)state;
    static const char text[] = "seq,op,id,size,stream,thread,t_us\r\n0,a,1,8,0,0,0\r\n1,f,1,8,0,0,1";
    struct trace trace;
    read_good(text, sizeof text - 1, &trace);
    assert_int_equal(trace.count, 2);
    trace_free(&trace);
}

static void many_events_are_kept(void **state) {
    (void)state;
    enum { EVENTS = 10000 };
    char *text = malloc(64 * EVENTS), *end = text + sprintf(text, HEADER);
    for (int i = 0; i < EVENTS; i++) end += sprintf(end, "%d,a,%d,%d,0,0,%d\n", i, EVENTS - i, i + 1, i);
    struct trace trace;
    read_good(text, (size_t)(end - text), &trace);
    assert_int_equal(trace.count, EVENTS);
    assert_int_equal(trace.events[EVENTS - 1].size, EVENTS);
    assert_int_equal(trace.peak_bytes, EVENTS * (EVENTS + 1) / 2);
    trace_free(&trace);
    free(text);
}

static void empty_file_is_refused(void **state) {
    (void)state;
    expect_complaint_of_text("", ":1: the file is empty: expected the header seq,op,id,size,stream,thread,t_us");
}

static void wrong_header_is_refused(void **state) {
    (void)state;
    expect_complaint_of_text(
        "0,a,1,8,0,0,0\n",
        ":1: the first line is \"0,a,1,8,0,0,0\": expected the header seq,op,id,size,stream,thread,t_us");
}

static void wrong_number_of_fields_is_refused(void **state) {
    (void)state;
    expect_complaint_of_text(HEADER "0,a,1,8,0,0\n", ":2: 6 fields: expected 7, seq,op,id,size,stream,thread,t_us");
    expect_complaint_of_text(HEADER "0,a,1,8,0,0,0\n1,f,1,8,0,0,1,2\n",
                             ":3: 8 fields: expected 7, seq,op,id,size,stream,thread,t_us");
    expect_complaint_of_text(HEADER "\n", ":2: 1 field: expected 7, seq,op,id,size,stream,thread,t_us");
}

static void fields_that_are_no_numbers_are_refused(void **state) {
    (void)state;
    static const char expected[] = "expected a whole number from 0 to 2^64 - 1";
    static const struct {
        const char *line, *complaint;
    } table[] = {
        {"x,a,1,8,0,0,0", ":2: seq is \"x\": "},
        {"0,a,-1,8,0,0,0", ":2: id is \"-1\": "},
        {"0,a,1,8.5,0,0,0", ":2: size is \"8.5\": "},
        {"0,a,1,0x10,0,0,0", ":2: size is \"0x10\": "},
        {"0,a,1,18446744073709551616,0,0,0", ":2: size is \"18446744073709551616\": "},
        {"0,a,1,8, 0,0,0", ":2: stream is \" 0\": "},
        {"0,a,1,8,0,main,0", ":2: thread is \"main\": "},
        {"0,a,1,8,0,0,", ":2: t_us is \"\": "},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char text[128], complaint[128];
        snprintf(text, sizeof text, HEADER "%s\n", table[i].line);
        snprintf(complaint, sizeof complaint, "%s%s", table[i].complaint, expected);
        expect_complaint_of_text(text, complaint);
    }
}

static void unknown_op_is_refused(void **state) {
    (void)state;
    expect_complaint_of_text(HEADER "0,m,1,8,0,0,0\n", ":2: op is \"m\": expected a (allocate) or f (free)");
    expect_complaint_of_text(HEADER "0,,1,8,0,0,0\n", ":2: op is \"\": expected a (allocate) or f (free)");
    expect_complaint_of_text(HEADER "0,af,1,8,0,0,0\n", ":2: op is \"af\": expected a (allocate) or f (free)");
}

static void allocation_of_no_bytes_is_refused(void **state) {
    (void)state;
    expect_complaint_of_text(HEADER "0,a,1,0,0,0,0\n", ":2: size is \"0\": expected a number of bytes above 0");
}

static void seq_that_does_not_grow_is_refused(void **state) {
    (void)state;
    expect_complaint_of_text(HEADER "4,a,1,8,0,0,0\n4,f,1,8,0,0,0\n",
                             ":3: seq is \"4\": expected a number above the last one, 4");
}

static void allocation_of_a_live_id_is_refused(void **state) {
    (void)state;
    expect_complaint_of_text(
        HEADER "0,a,5,8,0,0,0\n1,a,5,8,0,0,0\n",
        ":3: id is \"5\": expected one that is not live (this one was allocated and not yet freed)");
}

static void free_of_an_id_that_is_not_live_is_refused(void **state) {
    (void)state;
    static const char expected[] = ": id is \"5\": expected one that is live (allocated before, not yet freed)";
    char complaint[128];
    snprintf(complaint, sizeof complaint, ":2%s", expected);
    expect_complaint_of_text(HEADER "0,f,5,8,0,0,0\n", complaint);
    snprintf(complaint, sizeof complaint, ":4%s", expected);
    expect_complaint_of_text(HEADER "0,a,5,8,0,0,0\n1,f,5,8,0,0,0\n2,f,5,8,0,0,0\n", complaint);
}

static void free_of_another_size_is_refused(void **state) {
    (void)state;
    expect_complaint_of_text(HEADER "0,a,5,8,0,0,0\n1,f,5,9,0,0,0\n",
                             ":3: size is \"9\": expected 0 or the size of its allocation, 8");
}

static void live_bytes_beyond_64_bits_are_refused(void **state) {
    (void)state;
    expect_complaint_of_text(HEADER "0,a,1,18446744073709551615,0,0,0\n1,a,2,1,0,0,0\n",
                             ":3: size is \"1\": expected live bytes below 2^64 in fewer than 2^32 allocations");
}

static void bytes_that_cannot_be_shown_become_question_marks(void **state) {
    (void)state;
    static const char text[] = HEADER "0,a\0\x1b\xff,1,8,0,0,0\n";
    expect_complaint(text, sizeof text - 1, ":2: op is \"a???\": expected a (allocate) or f (free)");
}

static void file_that_cannot_be_read_is_named(void **state) {
    (void)state;
    char error[512];
    struct trace trace;
    assert_false(trace_read("/nonexistent/trace.csv", &trace, error, sizeof error));
    assert_string_equal(error, "/nonexistent/trace.csv: No such file or directory");
    assert_false(trace_read("/tmp", &trace, error, sizeof error));
    assert_string_equal(error, "/tmp: Is a directory");
}

/* A packed trace of one event; answers its length. */
static size_t pack(uint8_t *packed, size_t room) {
    static const char text[] = HEADER "0,a,1,8,0,0,0\n";
    size_t size = 0;
    assert_int_equal(
        lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, NULL, (const uint8_t *)text, sizeof text - 1, packed, &size, room),
        LZMA_OK);
    return size;
}

static void xz_is_unpacked(void **state) {
    (void)state;
    uint8_t packed[512];
    struct trace trace;
    read_good(packed, pack(packed, sizeof packed), &trace);
    assert_int_equal(trace.count, 1);
    assert_int_equal(trace.events[0].size, 8);
    trace_free(&trace);
}

static void xz_that_is_cut_off_or_damaged_is_refused(void **state) {
    (void)state;
    uint8_t packed[512];
    size_t size = pack(packed, sizeof packed);
    expect_complaint(packed, size - 20, ": the xz data ends too early (is the file cut off?)");
    packed[size / 2] ^= 0x10;
    expect_complaint(packed, size, ": the xz data is damaged");
}

static void gzip_is_refused_with_what_to_do(void **state) {
    (void)state;
    expect_complaint_of_text("\x1f\x8b\x08", ": compressed with gzip: expected plain text or xz (gzip -d unpacks it)");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(frees_are_paired_with_their_allocations),
    cmocka_unit_test(header_alone_is_a_trace_without_events),
    cmocka_unit_test(last_line_may_lack_its_end_and_lines_may_end_as_on_windows),
    cmocka_unit_test(many_events_are_kept),
    cmocka_unit_test(empty_file_is_refused),
    cmocka_unit_test(wrong_header_is_refused),
    cmocka_unit_test(wrong_number_of_fields_is_refused),
    cmocka_unit_test(fields_that_are_no_numbers_are_refused),
    cmocka_unit_test(unknown_op_is_refused),
    cmocka_unit_test(allocation_of_no_bytes_is_refused),
    cmocka_unit_test(seq_that_does_not_grow_is_refused),
    cmocka_unit_test(allocation_of_a_live_id_is_refused),
    cmocka_unit_test(free_of_an_id_that_is_not_live_is_refused),
    cmocka_unit_test(free_of_another_size_is_refused),
    cmocka_unit_test(live_bytes_beyond_64_bits_are_refused),
    cmocka_unit_test(bytes_that_cannot_be_shown_become_question_marks),
    cmocka_unit_test(file_that_cannot_be_read_is_named),
    cmocka_unit_test(xz_is_unpacked),
    cmocka_unit_test(xz_that_is_cut_off_or_damaged_is_refused),
    cmocka_unit_test(gzip_is_refused_with_what_to_do),
};

TESTING_MAIN(tests)
