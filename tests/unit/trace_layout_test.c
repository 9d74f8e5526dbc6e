/* SPDX-License-Identifier: MIT
 *
 * The recording's layout is a contract with files that exist: its version changes with any of these numbers.
 */
#include "support/testing.h"

#include "poolcuda/trace.h"

#define AT(type, member, offset, size)                                  \
    assert_int_equal(offsetof(struct poolcuda_##type, member), offset); \
    assert_int_equal(sizeof(((struct poolcuda_##type *)NULL)->member), size)

static void the_header_has_its_members_where_they_were(void **state) {
    (void)state;
    assert_int_equal(POOLCUDA_TRACE_VERSION, 1);
    assert_memory_equal(POOLCUDA_TRACE_MAGIC, "poolrec\0", 8);
    AT(trace_header, magic, 0, 8);
    AT(trace_header, version, 8, 4);
    AT(trace_header, header_bytes, 12, 4);
    AT(trace_header, pid, 16, 4);
    AT(trace_header, uid, 20, 4);
    AT(trace_header, counter, 24, 4);
    AT(trace_header, time_shift, 28, 4);
    AT(trace_header, begin.counter, 32, 8);
    AT(trace_header, begin.ns, 40, 8);
    AT(trace_header, begin_unix_ns, 48, 8);
    AT(trace_header, library_version, 56, 32);
    AT(trace_header, command, 88, 64);
    AT(trace_header, reserved, 152, 104);
}

static void blocks_and_records_have_their_members_where_they_were(void **state) {
    (void)state;
    assert_int_equal(POOLCUDA_TRACE_BLOCK_BYTES, 65536);
    assert_int_equal(POOLCUDA_TRACE_BLOCK_MAGIC, 0x4b4c4250);
    AT(trace_block, magic, 0, 4);
    AT(trace_block, bytes, 4, 4);
    AT(trace_block, number, 8, 8);
    AT(trace_block, base, 16, 8);
    AT(trace_block, end.counter, 24, 8);
    AT(trace_block, end.ns, 32, 8);
    AT(trace_block, lost, 40, 8);
    AT(trace_block, thread, 48, 4);
    AT(trace_block, flags, 52, 4);
    AT(trace_block, reserved, 56, 8);
    AT(trace_place, word, 0, 8);
    AT(trace_place, first, 8, 8);
    AT(trace_place, stream, 16, 8);
    AT(trace_place, where.device, 24, 4);
    AT(trace_place, where.memory, 28, 1);
    AT(trace_place, where.stream_kind, 29, 1);
    AT(trace_call, word, 0, 8);
    AT(trace_call, address, 8, 8);
    AT(trace_call, size, 16, 8);
    AT(trace_call, number, 24, 8);
    AT(trace_call, stream, 32, 8);
    AT(trace_call, device, 40, 2);
    AT(trace_call, code, 42, 2);
    AT(trace_call, operation, 44, 1);
    AT(trace_call, served, 45, 1);
    AT(trace_call, memory, 46, 1);
    AT(trace_call, stream_kind, 47, 1);
}

static void the_first_words_bits_are_where_they_were(void **state) {
    (void)state;
    assert_int_equal(POOLCUDA_TRACE_TIME_BITS, 28);
    assert_int_equal(POOLCUDA_TRACE_KIND_SHIFT, 28);
    assert_int_equal(POOLCUDA_TRACE_DOOR_SHIFT, 31);
    assert_int_equal(POOLCUDA_TRACE_PLACE_SHIFT, 32);
    assert_int_equal(POOLCUDA_TRACE_PLACES, 64);
    assert_int_equal(POOLCUDA_TRACE_FREE_BITS, 26);
    assert_int_equal(POOLCUDA_TRACE_HIT, 1);
    assert_int_equal(POOLCUDA_TRACE_FREE, 2);
    assert_int_equal(POOLCUDA_TRACE_PLACE, 3);
    assert_int_equal(POOLCUDA_TRACE_CALL, 4);
    assert_int_equal(POOLCUDA_TRACE_LAST, 1);
}

static void words_for_kinds_keep_their_numbers(void **state) {
    (void)state;
    assert_int_equal(POOLCUDA_TRACE_NANOSECONDS, 0);
    assert_int_equal(POOLCUDA_TRACE_TSC, 1);
    assert_int_equal(POOLCUDA_TRACE_CNTVCT, 2);
    assert_int_equal(POOLCUDA_TRACE_NO_STREAM, 0);
    assert_int_equal(POOLCUDA_TRACE_STREAM_ID, 1);
    assert_int_equal(POOLCUDA_TRACE_STREAM_HANDLE, 2);
    assert_int_equal(POOLCUDA_TRACE_PLAIN, 0);
    assert_int_equal(POOLCUDA_TRACE_ASYNC, 1);
    assert_int_equal(POOLCUDA_TRACE_ALLOC, 1);
    assert_int_equal(POOLCUDA_TRACE_RELEASE, 2);
    assert_int_equal(POOLCUDA_TRACE_BY_HIT, 1);
    assert_int_equal(POOLCUDA_TRACE_BY_MISS, 2);
    assert_int_equal(POOLCUDA_TRACE_BY_DRIVER, 3);
    assert_int_equal(POOLCUDA_TRACE_BY_NONE, 4);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_header_has_its_members_where_they_were),
    cmocka_unit_test(blocks_and_records_have_their_members_where_they_were),
    cmocka_unit_test(the_first_words_bits_are_where_they_were),
    cmocka_unit_test(words_for_kinds_keep_their_numbers),
};

TESTING_MAIN(tests)
