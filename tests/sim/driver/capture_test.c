/* SPDX-License-Identifier: MIT
 *
 * Stream capture: begin and end, what is refused and what that does to the capture, forks and joins.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "fixture.h"

static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                            CU_STREAM_CAPTURE_MODE_RELAXED};

static CUstreamCaptureStatus status_of(CUstream stream) {
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)99;
    CHECK(cuStreamIsCapturing(stream, &status));
    return status;
}

static CUstream capturing(unsigned flags, CUstreamCaptureMode mode) {
    CUstream stream = new_stream(flags);
    CHECK(cuStreamBeginCapture(stream, mode));
    return stream;
}

static void end_answers(CUstream stream, CUresult code) {
    CUgraph graph = (CUgraph)&graph;
    CHECK_CODE(cuStreamEndCapture(stream, &graph), code);
    if (code == CUDA_SUCCESS) {
        assert_non_null(graph);
        CHECK(cuGraphDestroy(graph));
    } else {
        assert_null(graph);
    }
    assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
}

static void launch(CUstream stream) {
    const struct sim_kernel kernel = {0};
    CHECK((CUresult)sim_launch(&kernel, stream));
}

static void begin_and_end(void **state) {
    (void)state;
    CUgraph graph;
    size_t nodes = 9;
    fresh_context();
    CUstream stream = new_stream(0);
    CHECK_CODE(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_CODE(cuStreamBeginCapture(stream, (CUstreamCaptureMode)3), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
    CHECK_CODE(cuStreamEndCapture(NULL, &graph), CUDA_ERROR_ILLEGAL_STATE);
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_CODE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
    assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CHECK_CODE(cuStreamEndCapture(stream, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphGetNodes(graph, NULL, &nodes));
    assert_int_equal(nodes, 0);
    CHECK(cuGraphDestroy(graph));
    CHECK_CODE(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuStreamIsCapturing(stream, NULL), CUDA_ERROR_INVALID_VALUE);
}

static void captured_work_is_recorded_and_not_run(void **state) {
    (void)state;
    CUdeviceptr memory;
    CUgraph graph;
    size_t nodes;
    unsigned char byte;
    fresh_context();
    CHECK(cuMemAlloc(&memory, 64));
    CHECK(cuMemsetD8(memory, 1, 64));
    CUstream stream = capturing(CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK(cuMemsetD8Async(memory, 2, 64, stream));
    launch(stream);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphGetNodes(graph, NULL, &nodes));
    assert_int_equal(nodes, 2);
    CHECK(cuMemcpyDtoH(&byte, memory, 1));
    assert_int_equal(byte, 1);
    CHECK(cuGraphDestroy(graph));
}

/* The calls that are unsafe while something captures. */

static CUdeviceptr block;
static CUstream idle_stream;
static CUevent recorded_before;

static CUresult call_alloc(void) {
    CUdeviceptr memory;
    return cuMemAlloc(&memory, 64);
}
static CUresult call_free(void) {
    return cuMemFree(block);
}
static CUresult call_free_null(void) {
    return cuMemFree(0);
}
static CUresult call_alloc_host(void) {
    void *host;
    return cuMemAllocHost(&host, 64);
}
static CUresult call_managed(void) {
    CUdeviceptr memory;
    return cuMemAllocManaged(&memory, 64, CU_MEM_ATTACH_GLOBAL);
}
static CUresult call_info(void) {
    return cuMemGetInfo(NULL, NULL);
}
static CUresult call_event_query(void) {
    return cuEventQuery(recorded_before);
}
static CUresult call_event_synchronize(void) {
    return cuEventSynchronize(recorded_before);
}
static CUresult call_stream_synchronize(void) {
    return cuStreamSynchronize(idle_stream);
}
static CUresult call_stream_query(void) {
    return cuStreamQuery(idle_stream);
}
static CUresult call_pool_attribute(void) {
    CUmemoryPool pool;
    cuuint64_t value;
    CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
    return cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value);
}
static CUresult call_pool_trim(void) {
    CUmemoryPool pool;
    CHECK(cuDeviceGetMemPool(&pool, 0));
    return cuMemPoolTrimTo(pool, 0);
}
static CUresult call_ipc(void) {
    CUipcMemHandle handle;
    return cuIpcGetMemHandle(&handle, block);
}

static CUresult (*const unsafe_calls[])(void) = {
    call_alloc,
    call_free,
    call_free_null,
    call_alloc_host,
    call_managed,
    call_info,
    call_event_query,
    call_event_synchronize,
    call_stream_synchronize,
    call_stream_query,
    call_pool_attribute,
    call_pool_trim,
    call_ipc,
};
enum { UNSAFE_CALLS = sizeof(unsafe_calls) / sizeof(unsafe_calls[0]) };

static void prepare_calls(void) {
    fresh_context();
    idle_stream = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cuEventCreate(&recorded_before, 0));
    CHECK(cuEventRecord(recorded_before, idle_stream));
    CHECK(cuMemAlloc(&block, 64));
}

static void unsafe_calls_of_the_capturing_thread(void **state) {
    (void)state;
    for (int mode = 0; mode < 3; mode++) {
        for (int call = 0; call < UNSAFE_CALLS; call++) {
            prepare_calls();
            CUstream stream = capturing(CU_STREAM_NON_BLOCKING, modes[mode]);
            const bool refused = modes[mode] != CU_STREAM_CAPTURE_MODE_RELAXED;
            const CUresult answer = unsafe_calls[call]();
            if (answer != (refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS))
                fail_msg("call %d in mode %d answers %d", call, mode, answer);
            assert_int_equal(status_of(stream),
                             refused ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE);
            end_answers(stream, refused ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
        }
    }
}

struct call_elsewhere {
    CUcontext context;
    CUstreamCaptureMode mode; /* of the calling thread */
    CUresult (*call)(void);
    CUresult answer;
};

static void *call_in_thread(void *argument) {
    struct call_elsewhere *const elsewhere = argument;
    CUstreamCaptureMode mode = elsewhere->mode;
    CHECK(cuCtxSetCurrent(elsewhere->context));
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
    elsewhere->answer = elsewhere->call();
    return NULL;
}

static CUresult answer_elsewhere(CUresult (*call)(void), CUstreamCaptureMode mode) {
    struct call_elsewhere elsewhere = {.mode = mode, .call = call};
    pthread_t thread;
    CHECK(cuCtxGetCurrent(&elsewhere.context));
    assert_int_equal(pthread_create(&thread, NULL, call_in_thread, &elsewhere), 0);
    pthread_join(thread, NULL);
    return elsewhere.answer;
}

static void an_unsafe_call_of_another_thread_kills_a_global_capture_only(void **state) {
    (void)state;
    for (int mode = 0; mode < 3; mode++) {
        prepare_calls();
        CUstream stream = capturing(CU_STREAM_NON_BLOCKING, modes[mode]);
        const bool refused = modes[mode] == CU_STREAM_CAPTURE_MODE_GLOBAL;
        CHECK(answer_elsewhere(call_alloc, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
        CHECK_CODE(answer_elsewhere(call_alloc, CU_STREAM_CAPTURE_MODE_GLOBAL),
                   refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS);
        end_answers(stream, refused ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
    }
}

static void exchanged_relaxed_mode_permits(void **state) {
    (void)state;
    prepare_calls();
    CUstream stream = capturing(CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    for (int call = 0; call < UNSAFE_CALLS; call++)
        if (unsafe_calls[call] != call_ipc) CHECK(unsafe_calls[call]());
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    end_answers(stream, CUDA_SUCCESS);
    mode = (CUstreamCaptureMode)3;
    CHECK_CODE(cuThreadExchangeStreamCaptureMode(&mode), CUDA_ERROR_INVALID_VALUE);
    CHECK_CODE(cuThreadExchangeStreamCaptureMode(NULL), CUDA_ERROR_INVALID_VALUE);
}

static void safe_calls_leave_the_capture_alone(void **state) {
    (void)state;
    CUcontext context;
    CUevent event;
    CUdevice device;
    CUmemoryPool pool;
    CUdeviceptr base;
    size_t bytes;
    uint64_t value;
    prepare_calls();
    CUstream stream = capturing(CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK(cuCtxGetCurrent(&context));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuCtxGetDevice(&device));
    CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cuEventCreate(&event, 0));
    CHECK(cuEventRecord(event, idle_stream));
    CHECK(cuEventDestroy(event));
    CHECK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_BUFFER_ID, block));
    CHECK(cuMemGetAddressRange(&base, &bytes, block));
    launch(idle_stream);
    end_answers(stream, CUDA_SUCCESS);
}

static void the_capturing_stream_is_not_asked(void **state) {
    (void)state;
    unsigned long long id;
    CUcontext context;
    CUdevice device;
    fresh_context();
    for (int mode = 0; mode < 3; mode++) {
        const bool relaxed = modes[mode] == CU_STREAM_CAPTURE_MODE_RELAXED;
        const CUresult refusal = relaxed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        const CUresult end = relaxed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        for (int question = 0; question < 5; question++) {
            CUstream stream = capturing(CU_STREAM_NON_BLOCKING, modes[mode]);
            switch (question) {
            case 0:
                CHECK_CODE(cuStreamGetId(stream, &id), refusal);
                break;
            case 1:
                CHECK_CODE(cuStreamGetCtx(stream, &context), refusal);
                break;
            case 2:
                CHECK_CODE(cuStreamGetDevice(stream, &device), refusal);
                break;
            case 3:
                CHECK_CODE(cuStreamQuery(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
                break;
            default:
                CHECK_CODE(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
                break;
            }
            end_answers(stream, question < 3 ? end : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
    }
}

static void synchronising_the_context_kills_every_capture_in_it(void **state) {
    (void)state;
    CUcontext context = fresh_context();
    CUevent event;
    CHECK(cuEventCreate(&event, 0));
    for (int mode = 0; mode < 3; mode++) {
        CUstream stream = capturing(CU_STREAM_NON_BLOCKING, modes[mode]);
        CHECK_CODE(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        end_answers(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        CHECK(cuStreamBeginCapture(stream, modes[mode]));
        CHECK_CODE(cuCtxRecordEvent(context, event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        end_answers(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
}

static void synchronising_another_device_harms_nothing(void **state) {
    (void)state;
    CUcontext other;
    fresh_context();
    CUstream stream = capturing(0, CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK(cuDevicePrimaryCtxRetain(&other, 1));
    CHECK(cuCtxPushCurrent(other));
    CHECK(cuCtxSynchronize());
    CHECK(cuCtxPopCurrent(NULL));
    end_answers(stream, CUDA_SUCCESS);
    CHECK(cuDevicePrimaryCtxRelease(1));
}

static void legacy_work_while_a_blocking_stream_captures_answers_906(void **state) {
    (void)state;
    CUdeviceptr memory;
    char byte;
    const struct sim_kernel kernel = {0};
    CUstreamCaptureStatus status;
    fresh_context();
    CHECK(cuMemAlloc(&memory, 64));
    for (int mode = 0; mode < 3; mode++) {
        for (int call = 0; call < 5; call++) {
            CUstream stream = capturing(0, modes[mode]);
            CHECK_CODE(cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
            assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
            CUresult answer;
            switch (call) {
            case 0:
                answer = cuMemcpyDtoH(&byte, memory, 1);
                break;
            case 1:
                answer = cuMemsetD8(memory, 0, 64);
                break;
            case 2:
                answer = cuStreamSynchronize(NULL);
                break;
            case 3:
                answer = (CUresult)sim_launch(&kernel, NULL);
                break;
            default:
                answer = cuMemAllocAsync(&memory, 64, NULL);
                break;
            }
            CHECK_CODE(answer, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
            end_answers(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
    }
}

static void legacy_work_while_a_free_running_stream_captures(void **state) {
    (void)state;
    CUdeviceptr memory;
    fresh_context();
    CHECK(cuMemAlloc(&memory, 64));
    CUstream stream = capturing(CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_int_equal(status_of(NULL), CU_STREAM_CAPTURE_STATUS_NONE);
    CHECK(cuMemsetD8(memory, 0, 64));
    launch(NULL);
    end_answers(stream, CUDA_SUCCESS);
    stream = capturing(CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_GLOBAL);
    launch(NULL);
    CHECK_CODE(cuMemsetD8(memory, 0, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_answers(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void after_a_refusal_the_stream_is_usable_again(void **state) {
    (void)state;
    fresh_context();
    CUstream stream = capturing(CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_GLOBAL);
    const struct sim_kernel kernel = {0};
    CHECK_CODE(call_alloc(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_CODE((CUresult)sim_launch(&kernel, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK_CODE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
    end_answers(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    launch(stream);
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    end_answers(stream, CUDA_SUCCESS);
}

static void forks_join_through_events(void **state) {
    (void)state;
    CUgraph graph;
    size_t nodes;
    CUevent forked, joined;
    fresh_context();
    CHECK(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
    CUstream origin = capturing(CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUstream side = new_stream(CU_STREAM_NON_BLOCKING);
    launch(origin);
    CHECK(cuEventRecord(forked, origin));
    CHECK_CODE(cuEventQuery(forked), CUDA_ERROR_CAPTURED_EVENT);
    CHECK(cuStreamWaitEvent(side, forked, 0));
    assert_int_equal(status_of(side), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CHECK_CODE(cuStreamBeginCapture(side, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
    launch(side);
    CHECK(cuEventRecord(joined, side));
    CHECK(cuStreamWaitEvent(origin, joined, 0));
    launch(origin);
    CHECK(cuStreamEndCapture(origin, &graph));
    CHECK(cuGraphGetNodes(graph, NULL, &nodes));
    assert_int_equal(nodes, 3);
    assert_int_equal(status_of(side), CU_STREAM_CAPTURE_STATUS_NONE);
    CHECK_CODE(cuEventQuery(joined), CUDA_ERROR_CAPTURED_EVENT);
    CHECK(cuEventRecord(joined, side));
    CHECK(cuEventSynchronize(joined));
    CHECK(cuGraphDestroy(graph));
}

static void a_fork_must_come_back(void **state) {
    (void)state;
    CUevent event;
    CUgraph graph;
    fresh_context();
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CUstream origin = capturing(CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUstream side = new_stream(CU_STREAM_NON_BLOCKING);
    launch(origin);
    CHECK(cuEventRecord(event, origin));
    CHECK(cuStreamWaitEvent(side, event, 0));
    launch(side);
    end_answers(origin, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    CHECK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch(origin);
    CHECK(cuEventRecord(event, origin));
    CHECK(cuStreamWaitEvent(side, event, 0));
    CHECK_CODE(cuStreamEndCapture(side, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    end_answers(origin, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch(origin);
    CHECK(cuEventRecord(event, origin));
    CHECK(cuStreamWaitEvent(side, event, 0));
    end_answers(origin, CUDA_SUCCESS);
}

static void events_from_outside_and_from_another_capture(void **state) {
    (void)state;
    CUevent outside, inside;
    fresh_context();
    CHECK(cuEventCreate(&outside, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&inside, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventRecord(outside, NULL));
    CUstream first = capturing(CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK_CODE(cuStreamWaitEvent(first, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    end_answers(first, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuStreamWaitEvent(first, outside, CU_EVENT_WAIT_EXTERNAL));
    CUstream second = capturing(CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK(cuEventRecord(inside, second));
    CHECK_CODE(cuStreamWaitEvent(first, inside, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    CUstream idle = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK_CODE(cuStreamWaitEvent(first, inside, 0), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK_CODE(cuStreamWaitEvent(idle, inside, 0), CUDA_ERROR_INVALID_VALUE);
    end_answers(first, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    end_answers(second, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static CUstream ended_elsewhere;
static CUresult call_end(void) {
    CUgraph graph;
    return cuStreamEndCapture(ended_elsewhere, &graph);
}

static void the_end_belongs_to_the_thread_unless_relaxed(void **state) {
    (void)state;
    fresh_context();
    for (int mode = 0; mode < 3; mode++) {
        ended_elsewhere = capturing(CU_STREAM_NON_BLOCKING, modes[mode]);
        if (modes[mode] == CU_STREAM_CAPTURE_MODE_RELAXED) {
            CHECK(answer_elsewhere(call_end, CU_STREAM_CAPTURE_MODE_GLOBAL));
        } else {
            CHECK_CODE(answer_elsewhere(call_end, CU_STREAM_CAPTURE_MODE_GLOBAL),
                       CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
            end_answers(ended_elsewhere, CUDA_SUCCESS);
        }
    }
}

static void allocations_become_nodes(void **state) {
    (void)state;
    CUdeviceptr memory, plain, other;
    CUgraph graph;
    size_t nodes;
    fresh_context();
    CHECK(cuMemAlloc(&plain, 64));
    CUstream stream = capturing(CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK(cuMemAllocAsync(&memory, 4096, stream));
    CHECK(cuMemsetD8Async(memory, 1, 4096, stream));
    CHECK(cuMemAllocAsync(&other, 4096, idle_stream = new_stream(CU_STREAM_NON_BLOCKING)));
    CHECK(cuMemFreeAsync(other, idle_stream));
    CHECK(cuMemFreeAsync(memory, stream));
    CHECK_CODE(cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphGetNodes(graph, NULL, &nodes));
    assert_int_equal(nodes, 3);
    CHECK(cuGraphDestroy(graph));
    CHECK_CODE(cuMemGetAddressRange(NULL, NULL, memory), CUDA_ERROR_NOT_FOUND);
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_CODE(cuMemFreeAsync(plain, stream), CUDA_ERROR_INVALID_VALUE);
    end_answers(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(cuMemFree(plain));
}

static void capture_info(void **state) {
    (void)state;
    CUstreamCaptureStatus status;
    cuuint64_t first = 0, second = 0;
    fresh_context();
    CUstream stream = capturing(CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK(cuStreamGetCaptureInfo(stream, &status, &first, NULL, NULL, NULL, NULL));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    assert_true(first > 0);
    end_answers(stream, CUDA_SUCCESS);
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuStreamGetCaptureInfo(stream, &status, &second, NULL, NULL, NULL, NULL));
    assert_int_not_equal(first, second);
    end_answers(stream, CUDA_SUCCESS);
}

static void destroying_the_stream_ends_its_capture(void **state) {
    (void)state;
    CUdeviceptr memory;
    fresh_context();
    CUstream stream = capturing(CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_GLOBAL);
    launch(stream);
    CHECK(cuStreamDestroy(stream));
    CHECK(cuMemAlloc(&memory, 64));
}

static void is_capturing_of_garbage_ends_the_process(void **state) {
    (void)state;
    int status;
    const pid_t child = fork();
    if (child == 0) {
        CUstreamCaptureStatus capturing_status;
        CUcontext context;
        signal(SIGSEGV, SIG_DFL);
        cuInit(0);
        cuDevicePrimaryCtxRetain(&context, 0);
        cuCtxSetCurrent(context);
        cuStreamIsCapturing((CUstream)0x1234, &capturing_status);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(is_capturing_of_garbage_ends_the_process), /* first: its child must be the first to start CUDA */
    cmocka_unit_test(begin_and_end),
    cmocka_unit_test(captured_work_is_recorded_and_not_run),
    cmocka_unit_test(unsafe_calls_of_the_capturing_thread),
    cmocka_unit_test(an_unsafe_call_of_another_thread_kills_a_global_capture_only),
    cmocka_unit_test(exchanged_relaxed_mode_permits),
    cmocka_unit_test(safe_calls_leave_the_capture_alone),
    cmocka_unit_test(the_capturing_stream_is_not_asked),
    cmocka_unit_test(synchronising_the_context_kills_every_capture_in_it),
    cmocka_unit_test(synchronising_another_device_harms_nothing),
    cmocka_unit_test(legacy_work_while_a_blocking_stream_captures_answers_906),
    cmocka_unit_test(legacy_work_while_a_free_running_stream_captures),
    cmocka_unit_test(after_a_refusal_the_stream_is_usable_again),
    cmocka_unit_test(forks_join_through_events),
    cmocka_unit_test(a_fork_must_come_back),
    cmocka_unit_test(events_from_outside_and_from_another_capture),
    cmocka_unit_test(the_end_belongs_to_the_thread_unless_relaxed),
    cmocka_unit_test(allocations_become_nodes),
    cmocka_unit_test(capture_info),
    cmocka_unit_test(destroying_the_stream_ends_its_capture),
};
TESTING_MAIN(tests)
