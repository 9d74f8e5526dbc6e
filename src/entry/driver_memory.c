/* SPDX-License-Identifier: MIT
 *
 * The driver door for memory: cuMemAlloc, cuMemFree and their stream-ordered siblings. What is in none of our segments
 * is the driver's; what is in one is never forwarded.
 */
#include "entry/captures.h"
#include "entry/mark.h"
#include "entry/process.h"
#include "entry/record.h"
#include "stats/writer.h"

_Thread_local struct mark entry_mark;

static enum pool_door door_of(struct mark mark) {
    return mark.kind == MARK_AGAIN ? POOL_DOOR_RUNTIME : POOL_DOOR_DRIVER;
}

static struct record record_of(enum mark_call call, struct mark mark, struct device_stream stream) {
    return (struct record){.call = call, .runtime_door = mark.kind != MARK_NONE, .stream = stream};
}

/* A call that the pool answered otherwise than by serving it. */
static CUresult ENTRY_COLD refused(enum mark_call call, struct mark mark, struct device_stream stream, uint64_t value,
                                   int code) {
    struct record record = record_of(call, mark, stream);
    return (CUresult)(call == MARK_ALLOC || call == MARK_ALLOC_ASYNC
                          ? record_alloc(&record, NULL, (size_t)value, POOLCUDA_TRACE_BY_NONE, code)
                          : record_free(&record, value, POOLCUDA_TRACE_BY_NONE, code));
}

static CUresult ENTRY_COLD alloc_by_driver(struct pool_system *pool, struct mark mark, CUdeviceptr *out, size_t bytes) {
    const struct record record = record_of(MARK_ALLOC, mark, (struct device_stream){0});
    CUresult result = REAL(cuMemAlloc_v2)(out, bytes);
    uint64_t address;
    if (result == CUDA_ERROR_OUT_OF_MEMORY && pool) {
        if (captures_any() && pool_alloc_cached(pool, bytes, door_of(mark), &address) == DEVICE_OK) {
            *out = (CUdeviceptr)address;
            return CUDA_SUCCESS;
        }
        if (process_relieve(-1)) result = REAL(cuMemAlloc_v2)(out, bytes);
    }
    return (CUresult)record_alloc(&record, out, bytes, POOLCUDA_TRACE_BY_DRIVER, (int)result);
}

CUresult entry_cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) {
    struct pool_system *pool = process_pool();
    const struct mark mark = mark_take(MARK_ALLOC, bytes);
    if (ENTRY_LIKELY(pool && mark.kind != MARK_PASS)) {
        if (mark.kind == MARK_ANSWER) return refused(MARK_ALLOC, mark, (struct device_stream){0}, bytes, mark.answer);
        uint64_t address = 0;
        /* A NULL pointer is told to the pool, so that it is counted. */
        const int code = pool_alloc(pool, bytes, door_of(mark), out ? &address : NULL);
        if (ENTRY_LIKELY(code == DEVICE_OK && out)) {
            *out = (CUdeviceptr)address;
            return CUDA_SUCCESS;
        }
        if (code != POOL_PASS) return refused(MARK_ALLOC, mark, (struct device_stream){0}, bytes, code);
    } else if (!pool) {
        stats_pass(process_pass_reason());
    }
    return symbols_driver() ? alloc_by_driver(pool, mark, out, bytes) : PROCESS_NO_DRIVER;
}

CUresult entry_cuMemFree_v2(CUdeviceptr address) {
    struct pool_system *pool = process_pool();
    const struct mark mark = mark_take(MARK_FREE, (uint64_t)address);
    if (ENTRY_LIKELY(pool && mark.kind != MARK_PASS)) {
        if (mark.kind == MARK_ANSWER)
            return refused(MARK_FREE, mark, (struct device_stream){0}, (uint64_t)address, mark.answer);
        const int code = pool_free(pool, (uint64_t)address, door_of(mark));
        if (ENTRY_LIKELY(code == DEVICE_OK)) return CUDA_SUCCESS;
        if (code != POOL_PASS) return refused(MARK_FREE, mark, (struct device_stream){0}, (uint64_t)address, code);
    } else if (!pool) {
        stats_pass(process_pass_reason());
    }
    if (!symbols_driver()) return PROCESS_NO_DRIVER;
    struct record record = record_of(MARK_FREE, mark, (struct device_stream){0});
    record.time = record_begin();
    const CUresult result = REAL(cuMemFree_v2)(address);
    return (CUresult)record_free(&record, (uint64_t)address, POOLCUDA_TRACE_BY_DRIVER, (int)result);
}

/* ---- stream-ordered ---- */

typedef CUresult(CUDAAPI *alloc_async_function)(CUdeviceptr *, size_t, CUstream);
typedef CUresult(CUDAAPI *free_async_function)(CUdeviceptr, CUstream);

static CUresult alloc_async(alloc_async_function real, CUdeviceptr *out, size_t bytes, struct device_stream stream) {
    if (!real) return PROCESS_NO_DRIVER;
    struct pool_system *pool = process_pool();
    const struct mark mark = mark_take(MARK_ALLOC_ASYNC, bytes);
    if (ENTRY_LIKELY(pool && mark.kind != MARK_PASS)) {
        if (mark.kind == MARK_ANSWER) return refused(MARK_ALLOC_ASYNC, mark, stream, bytes, mark.answer);
        uint64_t address = 0;
        const int code = pool_alloc_async(pool, bytes, stream, door_of(mark), out ? &address : NULL);
        if (ENTRY_LIKELY(code == DEVICE_OK && out)) {
            *out = (CUdeviceptr)address;
            return CUDA_SUCCESS;
        }
        if (code != POOL_PASS) return refused(MARK_ALLOC_ASYNC, mark, stream, bytes, code);
    } else if (!pool) {
        stats_pass(process_pass_reason());
    }
    CUresult result = real(out, bytes, stream.handle);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && process_relieve(-1)) result = real(out, bytes, stream.handle);
    const struct record record = record_of(MARK_ALLOC_ASYNC, mark, stream);
    return (CUresult)record_alloc(&record, out, bytes, POOLCUDA_TRACE_BY_DRIVER, (int)result);
}

CUresult entry_cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream) {
    return alloc_async(symbols_driver() ? REAL(cuMemAllocAsync) : NULL, out, bytes,
                       (struct device_stream){stream, false});
}

CUresult entry_cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t bytes, CUstream stream) {
    return alloc_async(symbols_driver() ? REAL(cuMemAllocAsync_ptsz) : NULL, out, bytes,
                       (struct device_stream){stream, true});
}

static CUresult free_async(free_async_function real, CUdeviceptr address, struct device_stream stream) {
    if (!real) return PROCESS_NO_DRIVER;
    struct pool_system *pool = process_pool();
    const struct mark mark = mark_take(MARK_FREE_ASYNC, (uint64_t)address);
    if (ENTRY_LIKELY(pool && mark.kind != MARK_PASS)) {
        if (mark.kind == MARK_ANSWER) return refused(MARK_FREE_ASYNC, mark, stream, (uint64_t)address, mark.answer);
        const int code = pool_free_async(pool, (uint64_t)address, stream, door_of(mark));
        if (ENTRY_LIKELY(code == DEVICE_OK)) return CUDA_SUCCESS;
        if (code != POOL_PASS) return refused(MARK_FREE_ASYNC, mark, stream, (uint64_t)address, code);
    } else if (!pool) {
        stats_pass(process_pass_reason());
    }
    struct record record = record_of(MARK_FREE_ASYNC, mark, stream);
    record.time = record_begin();
    const CUresult result = real(address, stream.handle);
    return (CUresult)record_free(&record, (uint64_t)address, POOLCUDA_TRACE_BY_DRIVER, (int)result);
}

CUresult entry_cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    return free_async(symbols_driver() ? REAL(cuMemFreeAsync) : NULL, address, (struct device_stream){stream, false});
}

CUresult entry_cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
    return free_async(symbols_driver() ? REAL(cuMemFreeAsync_ptsz) : NULL, address,
                      (struct device_stream){stream, true});
}
