/* SPDX-License-Identifier: MIT
 *
 * A program as nvcc compiles it: kernels launched in each way, managed memory, attributes and occupancy. Prints what
 * went wrong; the exit status is the number of such lines.
 */
#include <cstdio>
#include <cstring>

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

/* Templates give kernels long names: this one has more than a thousand characters. */
template <int... numbers> struct many {
    int value;
};
template <typename T> __global__ void use(T value) {}
using lengthy = many<1000001, 1000002, 1000003, 1000004, 1000005, 1000006, 1000007, 1000008, 1000009, 1000010, 1000011,
                     1000012, 1000013, 1000014, 1000015, 1000016, 1000017, 1000018, 1000019, 1000020, 1000021, 1000022,
                     1000023, 1000024, 1000025, 1000026, 1000027, 1000028, 1000029, 1000030, 1000031, 1000032, 1000033,
                     1000034, 1000035, 1000036, 1000037, 1000038, 1000039, 1000040, 1000041, 1000042, 1000043, 1000044,
                     1000045, 1000046, 1000047, 1000048, 1000049, 1000050, 1000051, 1000052, 1000053, 1000054, 1000055,
                     1000056, 1000057, 1000058, 1000059, 1000060, 1000061, 1000062, 1000063, 1000064, 1000065, 1000066,
                     1000067, 1000068, 1000069, 1000070, 1000071, 1000072, 1000073, 1000074, 1000075, 1000076, 1000077,
                     1000078, 1000079, 1000080, 1000081, 1000082, 1000083, 1000084, 1000085, 1000086, 1000087, 1000088,
                     1000089, 1000090, 1000091, 1000092, 1000093, 1000094, 1000095, 1000096, 1000097, 1000098, 1000099>;

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

    use<<<1, 32>>>(lengthy{1});
    CHECK(cudaGetLastError() == cudaSuccess);
    const char *name = nullptr;
    CHECK(cudaFuncGetName(&name, use<lengthy>) == cudaSuccess && std::strlen(name) > 1000);

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

    cudaGraph_t graph;
    cudaGraphNode_t node;
    cudaGraphExec_t executable;
    cudaKernelNodeParams node_parameters = {};
    node_parameters.func = reinterpret_cast<void *>(scale);
    node_parameters.gridDim = node_parameters.blockDim = dim3(1);
    node_parameters.kernelParams = arguments;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
    scale<<<1, 64, 0, stream>>>(values, 2.0f, 64);
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    CHECK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &node_parameters) == cudaSuccess);
    CHECK(cudaGraphInstantiate(&executable, graph) == cudaSuccess);
    CHECK(cudaGraphLaunch(executable, stream) == cudaSuccess);
    CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);

    shared_with_host = 7;
    CHECK(shared_with_host == 7);

    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    CHECK(cudaFree(values) == cudaSuccess);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    return failures;
}
