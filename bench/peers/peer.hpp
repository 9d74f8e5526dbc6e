/* SPDX-License-Identifier: MIT
 *
 * A peer's side of a load (bench/churn.h): the same loop as that of the pool, over a resource that is told at a free
 * how large the block was. A resource is a class with take(bytes), which answers NULL when there is no memory, and
 * give(block, bytes).
 */
#ifndef BENCH_PEERS_PEER_HPP
#define BENCH_PEERS_PEER_HPP

#include <cstddef>
#include <vector>

extern "C" {
#include "churn.h"
#include "measure.h"
}

template <typename Resource> class peer_side {
  public:
    explicit peer_side(Resource &resource, std::size_t live) : resource_{resource}, blocks_(live) {}

    void fill(const churn_plan &plan) {
        for (std::size_t i = 0; i < plan.live; i++) take(blocks_[i], plan.first_sizes[i]);
    }

    /* As churn_run: `count` pairs from number `first` on; nanoseconds a pair. */
    double run(const churn_plan &plan, std::size_t first, std::size_t count) {
        const churn_pair *end = plan.pairs + first + count;
        const auto start_ns = measure_thread_ns();
        for (const churn_pair *pairs = plan.pairs + first; pairs < end; pairs += plan.batch) {
            for (std::size_t i = 0; i < plan.batch; i++) give(blocks_[pairs[i].slot]);
            for (std::size_t i = 0; i < plan.batch; i++) take(blocks_[pairs[i].slot], pairs[i].size);
        }
        return static_cast<double>(measure_thread_ns() - start_ns) / static_cast<double>(count);
    }

    void empty() {
        for (block &each : blocks_) give(each);
    }

    std::size_t failures() const { return failures_; } /* allocations that were answered with NULL */

  private:
    struct block {
        void *address;
        std::size_t bytes;
    };

    void take(block &taken, std::size_t bytes) {
        taken = block{resource_.take(bytes), bytes};
        failures_ += taken.address == nullptr;
    }
    void give(block &given) {
        if (given.address != nullptr) resource_.give(given.address, given.bytes);
        given.address = nullptr;
    }

    Resource &resource_;
    std::vector<block> blocks_;
    std::size_t failures_{0};
};

#endif
