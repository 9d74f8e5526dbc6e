/* SPDX-License-Identifier: MIT
 *
 * A program as nvcc compiles it: kernels launched in each way, managed memory, attributes and occupancy. Prints what
 * went wrong; the exit status is the number of such lines.
 */
#include <cstdio>

static int failures;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            std::printf("line %d: %s\n", __LINE__, #condition);                                                        \
            failures++;                                                                                                \
        }                                                                                                              \
    } while (0)

__global__ void scale(float *values, float factor, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] *= factor;
}

template <typename T> __global__ void fill(T *values, T value) { values[threadIdx.x] = value; }

__managed__ int shared_with_host;

static float *launch_inside(float *values) {
    fill<<<1, 32>>>(values, 2.0f);
    return values;
}

int main() {
    float *values = nullptr;
    const int count = 1000;
    cudaStream_t stream;
    CHECK(cudaMalloc(&values, count * sizeof(float)) == cudaSuccess);
    CHECK(cudaStreamCreate(&stream) == cudaSuccess);

    scale<<<(count + 255) / 256, 256>>>(values, 2.0f, count);
    CHECK(cudaGetLastError() == cudaSuccess);
    scale<<<1, 64, 128, stream>>>(launch_inside(values), 2.0f, 64);
    CHECK(cudaGetLastError() == cudaSuccess);
    fill<<<1, 32, 0, stream>>>(reinterpret_cast<double *>(values), 1.0);
    CHECK(cudaGetLastError() == cudaSuccess);

    scale<<<1, 2048>>>(values, 2.0f, count);
    CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
    scale<<<0, 32>>>(values, 2.0f, count);
    CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);

    float factor = 3.0f;
    int some = 10;
    void *arguments[] = {&values, &factor, &some};
    CHECK(cudaLaunchKernel(reinterpret_cast<const void *>(scale), dim3(1), dim3(32), arguments, 0, stream) ==
          cudaSuccess);
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(2);
    config.blockDim = dim3(64);
    config.stream = stream;
    CHECK(cudaLaunchKernelEx(&config, scale, values, 2.0f, count) == cudaSuccess);
    CHECK(cudaLaunchKernel(reinterpret_cast<const void *>(main), dim3(1), dim3(1), arguments, 0, nullptr) ==
          cudaErrorInvalidDeviceFunction);
    CHECK(cudaGetLastError() == cudaErrorInvalidDeviceFunction);

    cudaFuncAttributes attributes;
    int blocks = 0, grid = 0, block = 0;
    CHECK(cudaFuncGetAttributes(&attributes, scale) == cudaSuccess);
    CHECK(attributes.maxThreadsPerBlock >= 256 && attributes.ptxVersion >= 50);
    CHECK(cudaFuncSetAttribute(scale, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 10) == cudaSuccess);
    CHECK(cudaFuncGetAttributes(&attributes, scale) == cudaSuccess);
    CHECK(attributes.maxDynamicSharedSizeBytes == 1 << 10);
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, scale, 256, 0) == cudaSuccess);
    CHECK(blocks > 0 && blocks <= 32);
    CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, scale) == cudaSuccess);
    CHECK(grid > 0 && block > 0 && block <= 1024);

    shared_with_host = 7;
    CHECK(shared_with_host == 7);

    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    CHECK(cudaFree(values) == cudaSuccess);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    return failures;
}
