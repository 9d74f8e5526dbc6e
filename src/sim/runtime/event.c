/* SPDX-License-Identifier: MIT
 *
 * Events.
 */
#include "runtime.h"

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuEventCreate(event, CU_EVENT_DEFAULT));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuEventCreate(event, flags));
}

SIMRT_STREAM_CALL(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), cuEventRecord, (event, stream))
SIMRT_STREAM_CALL(cudaEventRecordWithFlags, (cudaEvent_t event, cudaStream_t stream, unsigned flags),
                  cuEventRecordWithFlags, (event, stream, flags))

cudaError_t cudaEventQuery(cudaEvent_t event) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuEventQuery(event));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuEventSynchronize(event));
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuEventDestroy(event));
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuEventElapsedTime(milliseconds, start, end));
}
