/* SPDX-License-Identifier: MIT
 *
 * Look-ups through both forms of cuGetProcAddress, and the names of codes.
 */
#include <dlfcn.h>

#include "fixture.h"

typedef CUresult old_look_up(const char *name, void **function, int version, cuuint64_t flags);

static void *found(const char *name, int version, cuuint64_t flags, CUdriverProcAddressQueryResult expected) {
    void *function = (void *)name;
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)9;
    CHECK(cuGetProcAddress(name, &function, version, flags, &status));
    assert_int_equal(status, expected);
    if (expected != CU_GET_PROC_ADDRESS_SUCCESS) assert_null(function);
    return function;
}

static void finds(const char *name, int version, cuuint64_t flags, const char *symbol) {
    void *const function = found(name, version, flags, CU_GET_PROC_ADDRESS_SUCCESS);
    void *const exported = dlsym(RTLD_DEFAULT, symbol);
    assert_non_null(exported);
    if (function != exported) fail_msg("%s %d %d is not %s", name, version, (int)flags, symbol);
}

static void the_version_picks_the_revision(void **state) {
    (void)state;
    finds("cuMemAlloc", 2000, 0, "cuMemAlloc");
    finds("cuMemAlloc", 3019, 0, "cuMemAlloc");
    finds("cuMemAlloc", 3020, 0, "cuMemAlloc_v2");
    finds("cuMemAlloc", 13000, 0, "cuMemAlloc_v2");
    finds("cuCtxCreate", 3020, 0, "cuCtxCreate_v2");
    finds("cuCtxCreate", 11040, 0, "cuCtxCreate_v3");
    finds("cuCtxCreate", 12050, 0, "cuCtxCreate_v4");
    finds("cuCtxGetDevice", 12090, 0, "cuCtxGetDevice");
    finds("cuCtxGetDevice", 13000, 0, "cuCtxGetDevice_v2");
    finds("cuCtxSynchronize", 13000, 0, "cuCtxSynchronize_v2");
    finds("cuStreamGetCtx", 12040, 0, "cuStreamGetCtx");
    finds("cuStreamGetCtx", 12050, 0, "cuStreamGetCtx_v2");
    finds("cuEventElapsedTime", 12070, 0, "cuEventElapsedTime");
    finds("cuEventElapsedTime", 12080, 0, "cuEventElapsedTime_v2");
    finds("cuStreamGetCaptureInfo", 11030, 0, "cuStreamGetCaptureInfo_v2");
    finds("cuStreamGetCaptureInfo", 12030, 0, "cuStreamGetCaptureInfo_v3");
    finds("cuDevicePrimaryCtxRelease", 10020, 0, "cuDevicePrimaryCtxRelease");
    finds("cuDevicePrimaryCtxRelease", 11000, 0, "cuDevicePrimaryCtxRelease_v2");
    finds("cuGetProcAddress", 11030, 0, "cuGetProcAddress");
    finds("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2");
    finds("cuInit", 2000, 0, "cuInit");
}

static void the_flags_pick_the_default_stream(void **state) {
    (void)state;
    const cuuint64_t per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    finds("cuStreamQuery", 13000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, "cuStreamQuery");
    finds("cuStreamQuery", 13000, per_thread, "cuStreamQuery_ptsz");
    finds("cuStreamQuery", 2000, per_thread, "cuStreamQuery");
    finds("cuMemcpyHtoD", 7000, per_thread, "cuMemcpyHtoD_v2_ptds");
    finds("cuStreamGetCtx", 12050, per_thread, "cuStreamGetCtx_v2_ptsz");
    finds("cuMemAlloc", 13000, per_thread, "cuMemAlloc_v2");
}

static void misses_are_told_by_the_status(void **state) {
    (void)state;
    found("cuNoSuch", 13000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    found("", 0, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    found("cuMemAlloc_v2", 13000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    found("cuStreamQuery_ptsz", 13000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    found("cuStreamGetId", 11000, 0, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
}

static void wrong_arguments_answer_1(void **state) {
    (void)state;
    void *function;
    CHECK_CODE(cuGetProcAddress(NULL, &function, 13000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGetProcAddress("cuInit", NULL, 13000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGetProcAddress("cuInit", &function, 99990, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGetProcAddress("cuInit", &function, 13000, 3, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuGetProcAddress("cuInit", &function, 13000, 4, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuGetProcAddress("cuInit", &function, 13000, 0, NULL));
}

static void the_old_form_finds_the_same(void **state) {
    (void)state;
    old_look_up *const look_up = (old_look_up *)dlsym(RTLD_DEFAULT, "cuGetProcAddress");
    void *function = NULL;
    CHECK(look_up("cuMemAlloc", &function, 11030, 0));
    assert_ptr_equal(function, dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    CHECK(look_up("cuNoSuch", &function, 11030, 0));
    assert_null(function);
}

static void what_is_not_simulated_answers_801_and_is_counted(void **state) {
    (void)state;
    fresh_context();
    sim_reset_calls();
    assert_null(sim_unsimulated_name());
    CHECK_CODE(cuGraphicsUnregisterResource(NULL), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_CODE(cuGraphDebugDotPrint(NULL, "", 0), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(sim_calls("cuGraphicsUnregisterResource"), 1);
    assert_int_equal(sim_unsimulated_calls(), 2);
    assert_non_null(sim_unsimulated_name());
}

static void calls_are_counted_by_name_and_by_all_forms_of_it(void **state) {
    (void)state;
    CUdeviceptr memory;
    fresh_context();
    sim_reset_calls();
    CHECK(cuMemAlloc(&memory, 64));
    CHECK(cuMemFree(memory));
    CHECK(cuStreamQuery(NULL));
    CHECK(((CUresult(*)(CUstream))dlsym(RTLD_DEFAULT, "cuStreamQuery_ptsz"))(NULL));
    assert_int_equal(sim_calls("cuMemAlloc"), 1);
    assert_int_equal(sim_calls("cuMemAlloc_v2"), 1);
    assert_int_equal(sim_calls("cuStreamQuery"), 2);
    assert_int_equal(sim_calls("cuStreamQuery_ptsz"), 1);
    assert_int_equal(sim_calls("cuMemcpy"), 0);
}

static void names_and_texts_of_codes(void **state) {
    (void)state;
    const char *text = "";
    CHECK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
    assert_string_equal(text, "CUDA_ERROR_OUT_OF_MEMORY");
    CHECK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    assert_string_equal(text, "out of memory");
    CHECK_CODE(cuGetErrorName((CUresult)11, &text), CUDA_ERROR_INVALID_VALUE);
    assert_null(text);
    CHECK_CODE(cuGetErrorString((CUresult)-1, &text), CUDA_ERROR_INVALID_VALUE);
    assert_null(text);
    CHECK_CODE(cuGetErrorName(CUDA_SUCCESS, NULL), CUDA_ERROR_INVALID_VALUE);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_version_picks_the_revision),
    cmocka_unit_test(the_flags_pick_the_default_stream),
    cmocka_unit_test(misses_are_told_by_the_status),
    cmocka_unit_test(wrong_arguments_answer_1),
    cmocka_unit_test(the_old_form_finds_the_same),
    cmocka_unit_test(what_is_not_simulated_answers_801_and_is_counted),
    cmocka_unit_test(calls_are_counted_by_name_and_by_all_forms_of_it),
    cmocka_unit_test(names_and_texts_of_codes),
};
TESTING_MAIN(tests)
