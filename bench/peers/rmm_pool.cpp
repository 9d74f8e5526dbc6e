/* SPDX-License-Identifier: MIT
 *
 * rmm_pool: what an allocation and its free cost with RMM's suballocators beside the pool's, under the loads of pair,
 * in one process and by turns. RMM's take their memory from cudaMalloc, once, and serve one stream, as the pool's
 * cudaMallocAsync does here. scripts/bench-peers.sh builds it, runs it with the pool preloaded over the simulated CUDA
 * and makes the table of what it prints: a line for each load and side: side, order, live blocks, nanoseconds a pair.
 */
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/device/arena_memory_resource.hpp>
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>

#include "peer.hpp"

extern "C" {
#include "cell_sizes.h"
#include "own_figures.h"
}

namespace {

/* As pair's: a slice is short, so that few are disturbed by other work on the machine. */
constexpr std::size_t pairs_wanted = 20000, slice = 1000, slices = pairs_wanted / slice;
constexpr int warm_passes = 2, events = 1000;
constexpr std::size_t live_counts[] = {1000, 10000};
/* Of the device's free memory, for each of RMM's: more than the loads need. */
constexpr int percent = 25;

using upstream = rmm::mr::cuda_memory_resource;

template <typename Resource> class on_stream {
  public:
    on_stream(Resource &resource, cudaStream_t stream) : resource_{resource}, stream_{stream} {}
    void *take(std::size_t bytes) {
        try {
            return resource_.allocate_async(bytes, stream_);
        } catch (const std::bad_alloc &) {
            return nullptr;
        }
    }
    void give(void *block, std::size_t bytes) { resource_.deallocate_async(block, bytes, stream_); }

  private:
    Resource &resource_;
    rmm::cuda_stream_view stream_;
};

/* What the program calls of the runtime: the pool answers. */
class door {
  public:
    door(churn_calls calls, cudaStream_t stream, std::size_t live) : blocks_(live) {
        side_.calls = calls;
        side_.stream = stream;
        side_.blocks = blocks_.data();
    }
    void fill(const churn_plan &plan) { churn_fill(&plan, &side_); }
    double run(const churn_plan &plan, std::size_t first, std::size_t count) {
        return churn_run(&plan, first, count, &side_);
    }
    void empty(const churn_plan &plan) { churn_empty(&plan, &side_); }
    std::size_t failures() const { return side_.failures; }

  private:
    std::vector<void *> blocks_;
    churn_side side_{};
};

double record_events(cudaStream_t stream, cudaEvent_t event) {
    const auto start_ns = measure_thread_ns();
    for (int i = 0; i < events; i++) cudaEventRecord(event, stream);
    return static_cast<double>(measure_thread_ns() - start_ns) / events;
}

class bench {
  public:
    bench(cudaStream_t stream, cudaEvent_t event, const cell_sizes &sizes, std::size_t repetitions)
        : stream_{stream}, event_{event}, sizes_{sizes}, repetitions_{repetitions} {}

    bool measure(churn_order order, std::size_t live) {
        churn_plan plan;
        if (!churn_plan_make(&plan, order, live, pairs_wanted, sizes_.values, sizes_.count)) throw std::bad_alloc{};
        door async{CHURN_ASYNC, stream_, live}, plain{CHURN_PLAIN, stream_, live};
        peer_side<on_stream<decltype(pool_)>> pool{pool_stream_, live};
        peer_side<on_stream<decltype(arena_)>> arena{arena_stream_, live};
        async.fill(plan);
        plain.fill(plan);
        pool.fill(plan);
        arena.fill(plan);
        for (int i = 0; i < warm_passes; i++) play(plan, async, plain, pool, arena);
        for (auto &each : times_) each.clear();
        const std::size_t pool_bytes = pool_.pool_size();
        for (std::size_t i = 0; i < repetitions_; i++) play(plan, async, plain, pool, arena);
        const bool grown = pool_.pool_size() != pool_bytes;
        async.empty(plan);
        plain.empty(plan);
        pool.empty();
        arena.empty();
        churn_plan_free(&plan);
        const std::size_t failures = async.failures() + plain.failures() + pool.failures() + arena.failures();
        if (failures > 0)
            std::fprintf(stderr, "rmm_pool: %zu allocations failed with %zu blocks live\n", failures, live);
        if (grown) std::fputs("rmm_pool: RMM's pool grew while it was measured\n", stderr);
        report(order, live);
        return failures == 0 && !grown;
    }

  private:
    enum { ASYNC, PLAIN, POOL, ARENA, RECORD, SIDES };

    /* Whole passes by turns: what one side has in the caches is not driven out by another's at each slice. */
    template <typename Pool, typename Arena>
    void play(const churn_plan &plan, door &async, door &plain, Pool &pool, Arena &arena) {
        pass(plan, ASYNC, async);
        pass(plan, POOL, pool);
        pass(plan, PLAIN, plain);
        pass(plan, ARENA, arena);
        for (std::size_t i = 0; i < slices; i++) times_[RECORD].push_back(record_events(stream_, event_));
    }

    template <typename Side> void pass(const churn_plan &plan, int side, Side &played) {
        for (std::size_t first = 0; first < plan.pair_count; first += slice)
            times_[side].push_back(played.run(plan, first, slice));
    }

    void report(churn_order order, std::size_t live) {
        static const char *const names[SIDES] = {"async", "sync", "rmm_pool", "rmm_arena", "record"};
        for (int i = 0; i < SIDES; i++)
            std::printf("%s\t%s\t%zu\t%.1f\n", names[i], churn_order_names[order], live,
                        measure_median(times_[i].data(), times_[i].size()));
        std::fflush(stdout);
    }

    cudaStream_t stream_;
    cudaEvent_t event_;
    const cell_sizes &sizes_;
    std::size_t repetitions_;
    upstream upstream_;
    rmm::mr::pool_memory_resource<upstream> pool_{&upstream_, rmm::percent_of_free_device_memory(percent)};
    rmm::mr::arena_memory_resource<upstream> arena_{&upstream_, rmm::percent_of_free_device_memory(percent)};
    on_stream<decltype(pool_)> pool_stream_{pool_, stream_};
    on_stream<decltype(arena_)> arena_stream_{arena_, stream_};
    std::vector<double> times_[SIDES];
};

bool measure_all(const cell_sizes &sizes, std::size_t repetitions) {
    cudaStream_t stream;
    cudaEvent_t event;
    own_figures figures;
    const cudaError_t result = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (result != cudaSuccess || cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess) {
        std::fprintf(stderr, "rmm_pool: no CUDA device: %s\n", cudaGetErrorString(result));
        return false;
    }
    if (!own_figures_read(&figures)) {
        std::fputs("rmm_pool: this process is not on the pool: LD_PRELOAD=libpoolcuda.so\n", stderr);
        return false;
    }
    bench bench{stream, event, sizes, repetitions};
    char machine[512];
    measure_machine(machine, sizeof machine);
    std::printf("machine\t%s\n", machine);
    for (const std::size_t live : live_counts) {
        for (int order = 0; order < CHURN_ORDERS; order++) {
            if (!bench.measure(static_cast<churn_order>(order), live)) return false;
        }
    }
    return true;
}

} // namespace

int main(int argc, char **argv) {
    const long repetitions = argc > 2 ? std::strtol(argv[1], nullptr, 10) : 0;
    if (repetitions < 1 || repetitions > 1000) {
        std::fputs("Usage: rmm_pool REPETITIONS TRACE…\n", stderr);
        return 2;
    }
    cell_sizes sizes;
    bool measured = false;
    try {
        measured = cell_sizes_read(&sizes, argv + 2, static_cast<std::size_t>(argc - 2), "rmm_pool") &&
                   measure_all(sizes, static_cast<std::size_t>(repetitions));
    } catch (const std::exception &error) {
        std::fprintf(stderr, "rmm_pool: %s\n", error.what());
    }
    std::free(sizes.values);
    return measured ? 0 : 1;
}
