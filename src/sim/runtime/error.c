/* SPDX-License-Identifier: MIT
 *
 * The last error of each thread, and the names and texts of the codes. A failed runtime call leaves its code; only
 * cudaGetLastError or the next failure takes it away. An error of initialisation never goes away.
 */
#include "runtime.h"
#include "errors.h"

_Thread_local struct simrt_thread simrt_thread __attribute__((tls_model("initial-exec")));

cudaError_t cudaGetLastError(void) {
    const cudaError_t entered = simrt_enter_process();
    if (entered) return entered;
    const cudaError_t error = simrt_thread.last_error;
    simrt_thread.last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void) {
    const cudaError_t entered = simrt_enter_process();
    return entered ? entered : simrt_thread.last_error;
}

#define NAME_CASE(name, text) \
    case name:                \
        return #name;
#define TEXT_CASE(name, text) \
    case name:                \
        return text;

const char *cudaGetErrorName(cudaError_t error) {
    switch ((int)error) { SIMRT_ERRORS(NAME_CASE) }
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
    switch ((int)error) { SIMRT_ERRORS(TEXT_CASE) }
    return "unrecognized error code";
}
