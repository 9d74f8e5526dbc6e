/* SPDX-License-Identifier: MIT
 *
 * One family of calls: CALLS is the name of the table.
 */
#include "calls.h"

const struct calls CALLS = {
    .malloc_async = cudaMallocAsync,
    .free_async = cudaFreeAsync,
    .malloc_from_pool = cudaMallocFromPoolAsync,
    .driver_malloc_from_pool = cuMemAllocFromPoolAsync,
    .driver_malloc_async = cuMemAllocAsync,
    .driver_free_async = cuMemFreeAsync,
    .memset_async = cudaMemsetAsync,
    .copy_async = cudaMemcpyAsync,
    .event_record = cudaEventRecord,
    .stream_wait = cudaStreamWaitEvent,
    .stream_synchronize = cudaStreamSynchronize,
    .stream_query = cudaStreamQuery,
    .begin_capture = cudaStreamBeginCapture,
    .end_capture = cudaStreamEndCapture,
    .graph_launch = cudaGraphLaunch,
};
