/* SPDX-License-Identifier: MIT
 *
 * Before cuInit, after a fork, and at the end of a process. This process never starts CUDA itself: every case runs in a
 * child, whose exit status tells the answer.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "fixture.h"

/* Codes are larger than a status, so the child leaves them here. */
static int *answers;

static int run_child(void (*scenario)(void)) {
    int status;
    if (answers == NULL) answers = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 16; i++) answers[i] = -1;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        scenario();
        exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void start(void) {
    CUcontext context;
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS)
        _exit(99);
}

static void call_before_init(void) {
    CUcontext context = (CUcontext)1;
    CUdevice device = 7;
    int version = 0;
    void *function = NULL;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    answers[0] = cuCtxGetCurrent(&context);
    answers[1] = context == (CUcontext)1;
    answers[2] = cuCtxGetDevice(&device);
    answers[3] = cuCtxSetCurrent(NULL);
    answers[4] = cuCtxPopCurrent(NULL);
    answers[5] = cuDeviceGetCount(&device);
    answers[6] = cuThreadExchangeStreamCaptureMode(&mode);
    answers[7] = device;
    answers[8] = cuDriverGetVersion(&version);
    answers[9] = version;
    answers[10] = cuGetProcAddress("cuInit", &function, 13000, 0, NULL);
    answers[11] = function != NULL;
}

static void before_init_calls_answer_3(void **state) {
    (void)state;
    assert_int_equal(run_child(call_before_init), 0);
    assert_int_equal(answers[0], CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(answers[1], 1);
    for (int i = 2; i < 7; i++) assert_int_equal(answers[i], CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(answers[7], 7);
    assert_int_equal(answers[8], CUDA_SUCCESS);
    assert_int_equal(answers[9], 13000);
    assert_int_equal(answers[10], CUDA_SUCCESS);
    assert_int_equal(answers[11], 1);
}

static void fork_after_start(void) {
    CUdeviceptr memory;
    start();
    const pid_t child = fork();
    if (child == 0) {
        int count;
        answers[0] = cuInit(0);
        answers[1] = cuDeviceGetCount(&count);
        answers[2] = cuMemAlloc(&memory, 64);
        answers[3] = cuCtxSynchronize();
        exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    answers[4] = status;
    answers[5] = cuMemAlloc(&memory, 64);
}

static void a_child_of_a_started_process_gets_3(void **state) {
    (void)state;
    assert_int_equal(run_child(fork_after_start), 0);
    for (int i = 0; i < 4; i++) assert_int_equal(answers[i], CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(answers[4], 0);
    assert_int_equal(answers[5], CUDA_SUCCESS);
}

static void just_start(void) {
    int version;
    cuDriverGetVersion(&version);
    start();
    answers[0] = cuCtxSynchronize();
}

static void a_child_of_a_process_not_started_works(void **state) {
    (void)state;
    assert_int_equal(run_child(just_start), 0);
    assert_int_equal(answers[0], CUDA_SUCCESS);
}

static void leave_work_behind(void) {
    CUstream stream;
    CUdeviceptr memory;
    start();
    cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    cuMemAlloc(&memory, 1 << 20);
    const struct sim_kernel endless = {.until_released = true};
    answers[0] = sim_launch(&endless, stream);
    answers[1] = cuMemsetD8Async(memory, 1, 1 << 20, stream);
}

static void a_process_ends_whatever_is_queued(void **state) {
    (void)state;
    assert_int_equal(run_child(leave_work_behind), 0);
    assert_int_equal(answers[0], CUDA_SUCCESS);
    assert_int_equal(answers[1], CUDA_SUCCESS);
}

static void call_late(void) {
    CUdeviceptr memory;
    answers[0] = cuMemAlloc(&memory, 64);
    answers[1] = cuMemFree(0);
    answers[2] = cuInit(0);
    answers[3] = cuCtxSynchronize();
}

static void call_early(void) {
    CUdeviceptr memory;
    answers[4] = cuMemAlloc(&memory, 64);
}

static void register_handlers(void) {
    atexit(call_late);
    start();
    atexit(call_early);
}

static void after_the_driver_has_ended_calls_answer_4(void **state) {
    (void)state;
    assert_int_equal(run_child(register_handlers), 0);
    for (int i = 0; i < 4; i++) assert_int_equal(answers[i], CUDA_ERROR_DEINITIALIZED);
    assert_int_equal(answers[4], CUDA_SUCCESS);
}

static unsigned threads_now(void) {
    char line[128];
    unsigned count = 0;
    FILE *const file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "Threads: %u", &count) == 1) break;
    if (file != NULL) fclose(file);
    return count;
}

static void count_threads(void) {
    CUdeviceptr memory;
    char byte;
    answers[0] = (int)threads_now();
    start();
    cuMemAlloc(&memory, 1 << 20);
    cuMemsetD8(memory, 1, 1 << 20);
    cuMemcpyDtoH(&byte, memory, 1);
    cuMemFree(memory);
    answers[1] = (int)threads_now();
    const struct sim_kernel kernel = {.microseconds = 100};
    sim_launch(&kernel, NULL);
    cuCtxSynchronize();
    answers[2] = (int)threads_now();
}

static void no_thread_starts_before_asynchronous_work(void **state) {
    (void)state;
    assert_int_equal(run_child(count_threads), 0);
    assert_int_equal(answers[1], answers[0]);
    assert_true(answers[2] > answers[1]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(before_init_calls_answer_3),
    cmocka_unit_test(a_child_of_a_started_process_gets_3),
    cmocka_unit_test(a_child_of_a_process_not_started_works),
    cmocka_unit_test(a_process_ends_whatever_is_queued),
    cmocka_unit_test(after_the_driver_has_ended_calls_answer_4),
    cmocka_unit_test(no_thread_starts_before_asynchronous_work),
};
TESTING_MAIN(tests)
