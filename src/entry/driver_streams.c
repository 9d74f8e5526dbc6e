/* SPDX-License-Identifier: MIT
 *
 * The driver door for streams: which handle means which stream from when to when. A stream that is created here is
 * known until it is destroyed; before that the pool marks what was freed in its order.
 */
#include "device/driver.h"
#include "entry/captures.h"
#include "entry/starved.h"

/* After the driver has made the stream, in the current context. */
static CUresult created(CUresult result, const CUstream *stream) {
    struct device_context context;
    if (result != CUDA_SUCCESS || !stream || !process_pool() || process_context(&context) != DEVICE_OK) return result;
    device_driver_context_known(process_driver(), context, LIVE_FOUND);
    device_driver_stream_created(process_driver(), *stream, context);
    return result;
}

CUresult entry_cuStreamCreate(CUstream *stream, unsigned int flags) {
    STARVED_CALL(STARVED_CURRENT_DEVICE, cuStreamCreate, (stream, flags));
    return created(result, stream);
}

CUresult entry_cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority) {
    STARVED_CALL(STARVED_CURRENT_DEVICE, cuStreamCreateWithPriority, (stream, flags, priority));
    return created(result, stream);
}

/* The handle may come back at once, in another thread: the pool and the table let go of it before. */
static CUresult destroy(CUresult(CUDAAPI *real)(CUstream), CUstream stream) {
    struct pool_system *pool = process_pool();
    /* The default streams end with their context, and the driver refuses. */
    if (pool && stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD) {
        pool_stream_end(pool, stream);
        device_driver_stream_destroyed(process_driver(), stream);
    }
    return captures_destroy_stream(real, stream);
}

CUresult entry_cuStreamDestroy(CUstream stream) {
    return symbols_driver() && REAL(cuStreamDestroy) ? destroy(REAL(cuStreamDestroy), stream) : PROCESS_NO_DRIVER;
}

CUresult entry_cuStreamDestroy_v2(CUstream stream) {
    return symbols_driver() && REAL(cuStreamDestroy_v2) ? destroy(REAL(cuStreamDestroy_v2), stream) : PROCESS_NO_DRIVER;
}
