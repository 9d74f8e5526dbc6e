/* SPDX-License-Identifier: MIT
 *
 * The calls through the CUDA runtime that the program is linked with: shared, static, or a mock.
 */
#include "sequence.h"

#ifdef __cplusplus
extern "C" {
#endif
int cudaMalloc(void **out, size_t bytes);
int cudaFree(void *address);
#ifdef __cplusplus
}
#endif

int main(void) {
    const int failed = run_sequence(cudaMalloc, cudaFree);
    if (failed) printf("call %d failed\n", failed);
    wait_for_reader();
    return failed;
}
