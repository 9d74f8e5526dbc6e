/* SPDX-License-Identifier: MIT
 *
 * Driver entry points through the runtime: hits, misses, and the variants for per-thread default streams.
 */
#include "fixture.h"

extern __typeof__(cudaGetDriverEntryPointByVersion) cudaGetDriverEntryPointByVersion_ptsz;

static void *entry_point(const char *name, unsigned version, unsigned long long flags,
                         enum cudaDriverEntryPointQueryResult wanted) {
    void *function = (void *)1;
    enum cudaDriverEntryPointQueryResult status = (enum cudaDriverEntryPointQueryResult)9;
    CHECK_CUDA(cudaGetDriverEntryPointByVersion(name, &function, version, flags, &status));
    assert_int_equal(status, wanted);
    return function;
}

static void known_name_is_found_with_and_without_a_status(void **state) {
    (void)state;
    void *function = NULL;
    void *const found = entry_point("cuMemAlloc", 13000, cudaEnableDefault, cudaDriverEntryPointSuccess);
    assert_non_null(found);
    CHECK_CUDA(cudaGetDriverEntryPointByVersion("cuMemAlloc", &function, 13000, cudaEnableDefault, NULL));
    assert_ptr_equal(function, found);
}

static void miss_is_a_success_with_null_and_a_status(void **state) {
    (void)state;
    assert_null(entry_point("cuNoSuchCall", 13000, cudaEnableDefault, cudaDriverEntryPointSymbolNotFound));
    assert_null(entry_point("cuStreamGetId", 11000, cudaEnableDefault, cudaDriverEntryPointVersionNotSufficent));
}

static void flags_and_variant_choose_the_stream_form(void **state) {
    (void)state;
    void *by_variant = NULL, *by_flag = NULL;
    void *const legacy = entry_point("cuMemAllocAsync", 13000, cudaEnableDefault, cudaDriverEntryPointSuccess);
    void *const per_thread =
        entry_point("cuMemAllocAsync", 13000, cudaEnablePerThreadDefaultStream, cudaDriverEntryPointSuccess);
    assert_ptr_not_equal(legacy, per_thread);
    CHECK_CUDA(cudaGetDriverEntryPointByVersion_ptsz("cuMemAllocAsync", &by_variant, 13000, cudaEnableDefault, NULL));
    assert_ptr_equal(by_variant, per_thread);
    CHECK_CUDA(cudaGetDriverEntryPointByVersion_ptsz("cuMemAllocAsync", &by_flag, 13000, cudaEnableLegacyStream, NULL));
    assert_ptr_equal(by_flag, legacy);
}

static void bad_arguments_answer_1(void **state) {
    (void)state;
    void *function;
    CHECK_FAILS(cudaGetDriverEntryPointByVersion(NULL, &function, 13000, 0, NULL), cudaErrorInvalidValue);
    CHECK_FAILS(cudaGetDriverEntryPointByVersion("cuInit", NULL, 13000, 0, NULL), cudaErrorInvalidValue);
    CHECK_FAILS(cudaGetDriverEntryPointByVersion("cuInit", &function, 99990, 0, NULL), cudaErrorInvalidValue);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(known_name_is_found_with_and_without_a_status),
    cmocka_unit_test(miss_is_a_success_with_null_and_a_status),
    cmocka_unit_test(flags_and_variant_choose_the_stream_form),
    cmocka_unit_test(bad_arguments_answer_1),
};

TESTING_MAIN(tests)
