/* SPDX-License-Identifier: MIT
 *
 * The driver of mock_driver.h.
 */
#include "mock_driver.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct mock mock;
struct device_driver device;
struct device_driver mock_past_devices[128];
const struct device_ops *const ops = &device.ops;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* over what several threads may count */

static _Thread_local struct {
    CUcontext stack[8];
    unsigned depth;
    CUstreamCaptureMode mode;
} thread;

/* ---- host memory ---- */

static bool memory_fails(void) {
    if (!mock.memory_fails) return false;
    if (mock.memory_succeeds) {
        mock.memory_succeeds--;
        return false;
    }
    mock.memory_fails--;
    errno = ENOMEM;
    return true;
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size) {
    return memory_fails() ? NULL : __real_malloc(size);
}

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size) {
    return memory_fails() ? NULL : __real_calloc(count, size);
}

/* ---- what calls have in common ---- */

static CUresult call_begin(const char *name) {
    if (mock.during) mock.during(name);
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    if (mock.failing && strcmp(mock.failing, name) == 0) {
        if (mock.failing_after)
            mock.failing_after--;
        else
            result = mock.failing_code;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

#define CALL(name)                                 \
    do {                                           \
        const CUresult begun_ = call_begin(name);  \
        if (begun_ != CUDA_SUCCESS) return begun_; \
    } while (0)

static int number_of(CUcontext context) {
    const uintptr_t number = (uintptr_t)context - (uintptr_t)CONTEXT(0);
    assert_true(number < MOCK_CONTEXTS);
    return (int)number;
}

static bool is_alive(CUcontext context) {
    const int number = number_of(context);
    return number < MOCK_DEVICES ? mock.active[number] : mock.alive[number];
}

static int device_of(CUcontext context) {
    const int number = number_of(context);
    return number < MOCK_DEVICES ? number : 0;
}

/* ---- contexts ---- */

static CUresult get_current(CUcontext *out) {
    CALL("cuCtxGetCurrent");
    *out = thread.stack[thread.depth];
    return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *out) {
    CALL("cuCtxGetDevice");
    if (!thread.stack[thread.depth]) return CUDA_ERROR_INVALID_CONTEXT;
    *out = device_of(thread.stack[thread.depth]);
    return CUDA_SUCCESS;
}

static CUresult push(CUcontext context) {
    CALL("cuCtxPushCurrent_v2");
    assert_true(is_alive(context));
    assert_true(thread.depth < 7);
    thread.stack[++thread.depth] = context;
    return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *out) {
    assert_true(thread.depth > 0);
    *out = thread.stack[thread.depth--];
    return CUDA_SUCCESS;
}

static CUresult synchronize(void) {
    const CUcontext current = thread.stack[thread.depth];
    CALL("cuCtxSynchronize");
    if (!current) return CUDA_ERROR_INVALID_CONTEXT;
    assert_true(is_alive(current));
    pthread_mutex_lock(&lock);
    mock.synchronised_in[mock.synchronised++] = current;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult get_state(CUdevice ordinal, unsigned int *flags, int *active) {
    CALL("cuDevicePrimaryCtxGetState");
    if (ordinal < 0 || ordinal >= MOCK_DEVICES) return CUDA_ERROR_INVALID_DEVICE;
    *flags = 0;
    *active = mock.active[ordinal];
    return CUDA_SUCCESS;
}

static CUresult retain(CUcontext *out, CUdevice ordinal) {
    CALL("cuDevicePrimaryCtxRetain");
    assert_true(mock.active[ordinal]); /* else it would be made */
    __atomic_fetch_add(&mock.retained[ordinal], 1, __ATOMIC_RELAXED);
    *out = CONTEXT(ordinal);
    return CUDA_SUCCESS;
}

static CUresult release(CUdevice ordinal) {
    assert_true(__atomic_fetch_sub(&mock.retained[ordinal], 1, __ATOMIC_RELAXED) > 0);
    return CUDA_SUCCESS;
}

static CUresult count_devices(int *out) {
    CALL("cuDeviceGetCount");
    *out = MOCK_DEVICES;
    return CUDA_SUCCESS;
}

/* ---- events ---- */

static struct mock_event *event_of(CUevent handle) {
    const uintptr_t number = (uintptr_t)handle - 1;
    assert_true(number < MOCK_EVENTS);
    struct mock_event *event = &mock.events[number];
    pthread_mutex_lock(&lock);
    assert_non_null(event->context);
    assert_false(event->dead); /* the real driver follows the handle */
    pthread_mutex_unlock(&lock);
    return event;
}

static CUresult event_create(CUevent *out, unsigned int flags) {
    CALL("cuEventCreate");
    assert_int_equal(flags, CU_EVENT_DISABLE_TIMING);
    const CUcontext current = thread.stack[thread.depth];
    assert_true(current && is_alive(current));
    pthread_mutex_lock(&lock);
    const unsigned number = mock.events_made++;
    assert_true(number < MOCK_EVENTS);
    mock.events[number] = (struct mock_event){.context = current};
    pthread_mutex_unlock(&lock);
    *out = (CUevent)(uintptr_t)(number + 1);
    return CUDA_SUCCESS;
}

static void record(struct mock_event *event, bool of_context, CUstream stream) {
    pthread_mutex_lock(&lock);
    event->recorded = true;
    event->done = false;
    event->of_context = of_context;
    event->stream = stream;
    mock.records++;
    pthread_mutex_unlock(&lock);
}

static CUresult context_record(CUcontext context, CUevent handle) {
    CALL("cuCtxRecordEvent");
    struct mock_event *event = event_of(handle);
    assert_true(is_alive(context));
    assert_ptr_equal(event->context, context); /* else 400 */
    record(event, true, NULL);
    return CUDA_SUCCESS;
}

static CUresult event_record(CUevent handle, CUstream stream) {
    CALL("cuEventRecord");
    struct mock_event *event = event_of(handle);
    assert_ptr_equal(event->context, thread.stack[thread.depth]);
    record(event, false, stream);
    return CUDA_SUCCESS;
}

static CUresult event_query(CUevent handle) {
    CALL("cuEventQuery");
    struct mock_event *event = event_of(handle);
    assert_int_equal(thread.mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    pthread_mutex_lock(&lock);
    mock.queries++;
    const CUresult result = event->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    assert_true(event->recorded);
    pthread_mutex_unlock(&lock);
    return result;
}

static CUresult exchange_mode(CUstreamCaptureMode *mode) {
    CALL("cuThreadExchangeStreamCaptureMode");
    const CUstreamCaptureMode old = thread.mode;
    thread.mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}

/* ---- streams ---- */

static unsigned stream_number(CUstream stream) {
    const uintptr_t number = ((uintptr_t)stream - (uintptr_t)STREAM(0)) / 0x10;
    assert_true(number < MOCK_STREAMS);
    return (unsigned)number;
}

static CUresult stream_get_id(CUstream stream, unsigned long long *id) {
    CALL("cuStreamGetId");
    __atomic_fetch_add(&mock.stream_ids_asked, 1, __ATOMIC_RELAXED);
    const unsigned number = stream_number(stream);
    if (!mock.stream_ids[number]) return CUDA_ERROR_INVALID_HANDLE;
    assert_int_equal(mock.capturing[number], CU_STREAM_CAPTURE_STATUS_NONE); /* else it breaks the capture */
    *id = mock.stream_ids[number];
    return CUDA_SUCCESS;
}

static CUresult stream_get_context(CUstream stream, CUcontext *out) {
    CALL("cuStreamGetCtx");
    *out = mock.stream_contexts[stream_number(stream)];
    return CUDA_SUCCESS;
}

static CUresult stream_is_capturing(CUstream stream, CUstreamCaptureStatus *status) {
    CALL("cuStreamIsCapturing");
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (stream == CU_STREAM_LEGACY) return mock.legacy_capturing;
    if (stream != CU_STREAM_PER_THREAD) *status = mock.capturing[stream_number(stream)];
    return CUDA_SUCCESS;
}

/* ---- what these tests do not call ---- */

static CUresult not_called(void) {
    fail_msg("a call that has no place here");
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- the table ---- */

static const struct {
    const char *name;
    void *function;
} functions[] = {
    {"cuCtxGetCurrent", (void *)get_current},
    {"cuCtxGetDevice", (void *)get_device},
    {"cuCtxPushCurrent_v2", (void *)push},
    {"cuCtxPopCurrent_v2", (void *)pop},
    {"cuCtxSynchronize", (void *)synchronize},
    {"cuDevicePrimaryCtxGetState", (void *)get_state},
    {"cuDevicePrimaryCtxRetain", (void *)retain},
    {"cuDevicePrimaryCtxRelease_v2", (void *)release},
    {"cuMemAlloc_v2", (void *)not_called},
    {"cuMemFree_v2", (void *)not_called},
    {"cuMemGetInfo_v2", (void *)not_called},
    {"cuStreamSynchronize", (void *)not_called},
    {"cuDeviceGetCount", (void *)count_devices},
    {"cuEventCreate", (void *)event_create},
    {"cuEventRecord", (void *)event_record},
    {"cuEventQuery", (void *)event_query},
    {"cuCtxRecordEvent", (void *)context_record},
    {"cuThreadExchangeStreamCaptureMode", (void *)exchange_mode},
    {"cuStreamGetId", (void *)stream_get_id},
    {"cuStreamGetCtx", (void *)stream_get_context},
    {"cuStreamIsCapturing", (void *)stream_is_capturing},
};

static void *look_up(void *arg, const char *symbol) {
    const char *const *missing = arg;
    for (; missing && *missing; missing++)
        if (strcmp(*missing, symbol) == 0) return NULL;
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (strcmp(functions[i].name, symbol) == 0) return functions[i].function;
    return NULL;
}

static void put_away(void) {
    static size_t count;
    assert_true(count < sizeof mock_past_devices / sizeof *mock_past_devices);
    mock_past_devices[count++] = device;
}

void mock_begin(const char *const *missing) {
    put_away();
    memset(&mock, 0, sizeof mock);
    memset(&device, 0, sizeof device);
    mock.active[0] = mock.active[1] = true;
    memset(&thread, 0, sizeof thread);
    thread.stack[0] = CONTEXT(0);
    assert_null(device_driver_bind(&device, look_up, (void *)missing));
}

void mock_make_current(CUcontext context) {
    thread.stack[thread.depth] = context;
}

CUstreamCaptureMode *mock_mode(void) {
    return &thread.mode;
}

CUcontext mock_current(void) {
    return thread.stack[thread.depth];
}

unsigned mock_depth(void) {
    return thread.depth;
}

struct device_context mock_context(int number) {
    return (struct device_context){CONTEXT(number), device_of(CONTEXT(number))};
}

void mock_end_context(int number) {
    device_driver_context_closing(&device, CONTEXT(number));
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < MOCK_EVENTS; i++)
        if (mock.events[i].context == CONTEXT(number)) mock.events[i].dead = true;
    pthread_mutex_unlock(&lock);
    if (number < MOCK_DEVICES) mock.active[number] = false;
    mock.alive[number] = false;
    device_driver_context_settled(&device, CONTEXT(number), true);
}

void mock_complete(int number) {
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < MOCK_EVENTS; i++)
        if (number < 0 || mock.events[i].context == CONTEXT(number)) mock.events[i].done = true;
    pthread_mutex_unlock(&lock);
}

unsigned mock_recorded(int number) {
    unsigned count = 0;
    for (unsigned i = 0; i < MOCK_EVENTS; i++) {
        const struct mock_event *event = &mock.events[i];
        count += event->recorded && event->of_context && event->context == CONTEXT(number) && !event->dead;
    }
    return count;
}
