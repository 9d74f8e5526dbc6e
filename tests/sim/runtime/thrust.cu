/* SPDX-License-Identifier: MIT
 *
 * A program on Thrust, whose temporaries come and go by cudaMalloc and cudaFree. Kernels compute nothing on the
 * simulated CUDA, so only its answers are looked at.
 */
#include <cstdio>
#include <exception>
#include <thrust/device_vector.h>
#include <thrust/sort.h>

int main() {
    try {
        thrust::device_vector<int> values(100000, 1);
        thrust::sort(values.begin(), values.end());
        thrust::device_vector<int> copy = values;
    } catch (const std::exception &problem) {
        std::printf("%s\n", problem.what());
        return 1;
    }
    return cudaDeviceSynchronize() == cudaSuccess ? 0 : 2;
}
