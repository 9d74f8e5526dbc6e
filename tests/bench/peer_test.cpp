/* SPDX-License-Identifier: MIT
 *
 * A peer's side of a load (bench/peers/peer.hpp) over a resource that keeps books: it does what the pool's side does,
 * and tells at each free the size that was asked for.
 */
#include "peers/peer.hpp"

#include <cstdint>
#include <map>
#include <vector>

/* cmocka.h does not know C++. */
extern "C" {
#include "testing.h"
}

namespace {

struct books {
    std::map<void *, std::size_t> live;
    std::vector<std::size_t> taken;
    std::size_t wrong_frees{0}, most_live{0}, least_live{SIZE_MAX}, refused{0}, refuse_at{0};
    std::uintptr_t next{4096};

    void *take(std::size_t bytes) {
        taken.push_back(bytes);
        if (taken.size() == refuse_at) return refused++, nullptr;
        void *block = reinterpret_cast<void *>(next += 4096);
        live[block] = bytes;
        if (live.size() > most_live) most_live = live.size();
        return block;
    }
    void give(void *block, std::size_t bytes) {
        const auto found = live.find(block);
        if (found == live.end() || found->second != bytes) {
            wrong_frees++;
            return;
        }
        live.erase(found);
        if (live.size() < least_live) least_live = live.size();
    }
};

struct load {
    churn_plan plan;
    explicit load(churn_order order) {
        const std::size_t sizes[] = {512, 1000, 70000, 3};
        assert_true(churn_plan_make(&plan, order, 100, 1000, sizes, 4));
    }
    ~load() { churn_plan_free(&plan); }
};

void every_block_is_freed_once_with_its_size(void **) {
    for (int order = 0; order < CHURN_ORDERS; order++) {
        load load{static_cast<churn_order>(order)};
        books books;
        peer_side<struct books> side{books, load.plan.live};
        side.fill(load.plan);
        assert_int_equal(books.live.size(), load.plan.live);
        side.run(load.plan, 0, load.plan.pair_count);
        assert_int_equal(books.live.size(), load.plan.live);
        assert_int_equal(books.most_live, load.plan.live);
        assert_int_equal(books.least_live, load.plan.live - load.plan.batch);
        side.empty();
        assert_int_equal(books.live.size(), 0);
        assert_int_equal(books.wrong_frees, 0);
        assert_int_equal(side.failures(), 0);
    }
}

void sizes_are_those_of_the_plan_in_its_order(void **) {
    load load{CHURN_RANDOM};
    books books;
    peer_side<struct books> side{books, load.plan.live};
    side.fill(load.plan);
    side.run(load.plan, load.plan.batch, load.plan.batch);
    assert_int_equal(books.taken.size(), load.plan.live + load.plan.batch);
    for (std::size_t i = 0; i < load.plan.live; i++) assert_int_equal(books.taken[i], load.plan.first_sizes[i]);
    for (std::size_t i = 0; i < load.plan.batch; i++)
        assert_int_equal(books.taken[load.plan.live + i], load.plan.pairs[load.plan.batch + i].size);
    side.empty();
}

void an_allocation_that_fails_is_counted_and_not_freed(void **) {
    load load{CHURN_FIFO};
    books books;
    books.refuse_at = 7;
    peer_side<struct books> side{books, load.plan.live};
    side.fill(load.plan);
    side.run(load.plan, 0, load.plan.pair_count);
    side.empty();
    assert_int_equal(books.refused, 1);
    assert_int_equal(side.failures(), 1);
    assert_int_equal(books.wrong_frees, 0);
    assert_int_equal(books.live.size(), 0);
}

const CMUnitTest tests[] = {
    cmocka_unit_test(every_block_is_freed_once_with_its_size),
    cmocka_unit_test(sizes_are_those_of_the_plan_in_its_order),
    cmocka_unit_test(an_allocation_that_fails_is_counted_and_not_freed),
};

} // namespace

TESTING_MAIN(tests)
