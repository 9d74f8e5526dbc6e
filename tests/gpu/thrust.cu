// SPDX-License-Identifier: MIT
//
// Sort, scan and reduce of Thrust in a loop, which take their temporary memory by cudaMalloc. Prints one JSON object:
// for each size the median milliseconds of a round, and a sum of what came out.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <thrust/device_vector.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/transform.h>

struct scatter {
    uint32_t seed;
    __host__ __device__ uint32_t operator()(uint32_t x) const {
        x = (x + seed) * 2654435761u;
        x ^= x >> 15;
        return x * 2246822519u;
    }
};

static uint64_t round_of(size_t count, uint32_t seed) {
    thrust::device_vector<uint32_t> keys(count), sums(count);
    thrust::sequence(keys.begin(), keys.end());
    thrust::transform(keys.begin(), keys.end(), keys.begin(), scatter{seed});
    thrust::sort(keys.begin(), keys.end());
    thrust::inclusive_scan(keys.begin(), keys.end(), sums.begin());
    // Weighted by their places: an order that is wrong changes it.
    thrust::transform(keys.begin(), keys.end(), sums.begin(), sums.begin(), thrust::minus<uint32_t>());
    return thrust::reduce(sums.begin(), sums.end(), (uint64_t)0);
}

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? atoi(argv[1]) : 20;
    std::printf("{\"sizes\": [");
    for (size_t count = 1 << 20; count <= (64u << 20); count *= 4) {
        std::vector<double> times;
        uint64_t sum = 0;
        for (int i = 0; i < rounds + 2; i++) {
            const auto begin = std::chrono::steady_clock::now();
            sum = sum * 31 + round_of(count, (uint32_t)i);
            const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - begin;
            if (i >= 2) times.push_back(spent.count());
        }
        std::sort(times.begin(), times.end());
        std::printf("%s{\"elements\": %zu, \"median_ms\": %.4f, \"sum\": \"%llu\"}", count == 1 << 20 ? "" : ", ",
                    count, times[times.size() / 2], (unsigned long long)sum);
    }
    std::printf("]}\n");
    return 0;
}
