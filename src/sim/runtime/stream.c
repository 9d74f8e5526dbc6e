/* SPDX-License-Identifier: MIT
 *
 * Streams and host functions.
 */
#include "runtime.h"

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuStreamCreate(stream, CU_STREAM_DEFAULT));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuStreamCreate(stream, flags));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuStreamCreateWithPriority(stream, flags, priority));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuStreamDestroy(stream));
}

SIMRT_STREAM_CALL(cudaStreamSynchronize, (cudaStream_t stream), cuStreamSynchronize, (stream))
SIMRT_STREAM_CALL(cudaStreamQuery, (cudaStream_t stream), cuStreamQuery, (stream))
SIMRT_STREAM_CALL(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned flags), cuStreamWaitEvent,
                  (stream, event, flags))
SIMRT_STREAM_CALL(cudaStreamGetPriority, (cudaStream_t stream, int *priority), cuStreamGetPriority, (stream, priority))
SIMRT_STREAM_CALL(cudaStreamGetFlags, (cudaStream_t stream, unsigned *flags), cuStreamGetFlags, (stream, flags))
SIMRT_STREAM_CALL(cudaStreamGetId, (cudaStream_t stream, unsigned long long *id), cuStreamGetId, (stream, id))
SIMRT_STREAM_CALL(cudaStreamGetDevice, (cudaStream_t stream, int *device), cuStreamGetDevice, (stream, device))
SIMRT_STREAM_CALL(cudaLaunchHostFunc, (cudaStream_t stream, cudaHostFn_t function, void *data), cuLaunchHostFunc,
                  (stream, function, data))
/* Both interfaces call back with a stream, a code of one numbering and the data. */
SIMRT_STREAM_CALL(cudaStreamAddCallback,
                  (cudaStream_t stream, cudaStreamCallback_t callback, void *data, unsigned flags), cuStreamAddCallback,
                  (stream, (CUstreamCallback)(void *)callback, data, flags))

/* Attributes have one layout in both interfaces. */
SIMRT_STREAM_CALL(cudaStreamCopyAttributes, (cudaStream_t to, cudaStream_t from), cuStreamCopyAttributes, (to, from))
SIMRT_STREAM_CALL(cudaStreamGetAttribute,
                  (cudaStream_t stream, cudaLaunchAttributeID attribute, cudaLaunchAttributeValue *value),
                  cuStreamGetAttribute, (stream, (CUstreamAttrID)attribute, (CUstreamAttrValue *)value))
SIMRT_STREAM_CALL(cudaStreamSetAttribute,
                  (cudaStream_t stream, cudaLaunchAttributeID attribute, const cudaLaunchAttributeValue *value),
                  cuStreamSetAttribute, (stream, (CUstreamAttrID)attribute, (const CUstreamAttrValue *)value))
