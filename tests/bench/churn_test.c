/* SPDX-License-Identifier: MIT
 *
 * The plan of a steady load: that blocks are freed in the order that it says, each once a batch, in sizes that were
 * given.
 */
#include <stdlib.h>

#include "churn.h"
#include "testing.h"

enum { LIVE = 1000, PAIRS = 20000, BATCH = LIVE / CHURN_PARTS };

static const size_t sizes[] = {1, 50000, 600 * 1024, 2 << 20};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void make(struct churn_plan *plan, enum churn_order order) {
    assert_true(churn_plan_make(plan, order, LIVE, PAIRS, sizes, SIZES));
    assert_int_equal(plan->live, LIVE);
    assert_int_equal(plan->batch, BATCH);
    assert_int_equal(plan->pair_count % LIVE, 0);
    assert_in_range(plan->pair_count, PAIRS, PAIRS + LIVE);
}

/* The live block that was allocated first, or last, of those that are not freed yet. */
static size_t extreme(const long *born, const bool *freed, bool first) {
    size_t found = LIVE;
    for (size_t i = 0; i < LIVE; i++) {
        if (freed[i]) continue;
        if (found == LIVE || (first ? born[i] < born[found] : born[i] > born[found])) found = i;
    }
    return found;
}

/* How many of the plan's frees, twice over, are of the oldest block, and of the youngest. */
static void count_extremes(const struct churn_plan *plan, size_t *oldest, size_t *youngest) {
    long born[LIVE], now = 0;
    *oldest = *youngest = 0;
    for (size_t i = 0; i < LIVE; i++) born[i] = now++;
    for (size_t start = 0; start < 2 * plan->pair_count; start += BATCH) {
        const struct churn_pair *pairs = plan->pairs + start % plan->pair_count;
        bool freed[LIVE] = {false};
        for (size_t i = 0; i < BATCH; i++) {
            const size_t slot = pairs[i].slot;
            assert_in_range(slot, 0, LIVE - 1);
            assert_false(freed[slot]);
            *oldest += slot == extreme(born, freed, true);
            *youngest += slot == extreme(born, freed, false);
            freed[slot] = true;
        }
        for (size_t i = 0; i < BATCH; i++) born[pairs[i].slot] = now++;
    }
}

static void lifo_frees_the_youngest_and_fifo_the_oldest_from_one_pass_to_the_next(void **state) {
    (void)state;
    struct churn_plan plan;
    size_t oldest, youngest;
    make(&plan, CHURN_LIFO);
    count_extremes(&plan, &oldest, &youngest);
    assert_int_equal(youngest, 2 * plan.pair_count);
    churn_plan_free(&plan);
    make(&plan, CHURN_FIFO);
    count_extremes(&plan, &oldest, &youngest);
    assert_int_equal(oldest, 2 * plan.pair_count);
    churn_plan_free(&plan);
}

static void random_frees_any_block_as_often_as_another(void **state) {
    (void)state;
    struct churn_plan plan;
    size_t oldest, youngest, freed[LIVE] = {0};
    make(&plan, CHURN_RANDOM);
    count_extremes(&plan, &oldest, &youngest);
    assert_in_range(oldest, 0, plan.pair_count / 100);
    assert_in_range(youngest, 0, plan.pair_count / 100);
    for (size_t i = 0; i < plan.pair_count; i++) freed[plan.pairs[i].slot]++;
    /* Each 20 times on average. */
    for (size_t i = 0; i < LIVE; i++) assert_in_range(freed[i], 1, 60);
    churn_plan_free(&plan);
}

static void sizes_are_those_given_and_glibcs_a_1024th_within_its_fast_path(void **state) {
    (void)state;
    static const uint32_t of_host[SIZES] = {16, 48, 600, 1024};
    struct churn_plan plan;
    size_t drawn[SIZES] = {0};
    make(&plan, CHURN_FIFO);
    for (size_t i = 0; i < plan.pair_count; i++) {
        size_t which = 0;
        while (which < SIZES && sizes[which] != plan.pairs[i].size) which++;
        assert_in_range(which, 0, SIZES - 1);
        assert_int_equal(plan.pairs[i].host_size, of_host[which]);
        drawn[which]++;
    }
    for (size_t i = 0; i < SIZES; i++)
        assert_in_range(drawn[i], plan.pair_count / SIZES / 2, plan.pair_count / SIZES * 2);
    churn_plan_free(&plan);
}

static void every_plan_of_one_load_is_the_same(void **state) {
    (void)state;
    for (enum churn_order order = 0; order < CHURN_ORDERS; order++) {
        struct churn_plan one, other;
        make(&one, order);
        make(&other, order);
        for (size_t i = 0; i < one.pair_count; i++) {
            assert_int_equal(one.pairs[i].slot, other.pairs[i].slot);
            assert_int_equal(one.pairs[i].size, other.pairs[i].size);
        }
        assert_memory_equal(one.first_sizes, other.first_sizes, LIVE * sizeof *one.first_sizes);
        churn_plan_free(&one);
        churn_plan_free(&other);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(lifo_frees_the_youngest_and_fifo_the_oldest_from_one_pass_to_the_next),
    cmocka_unit_test(random_frees_any_block_as_often_as_another),
    cmocka_unit_test(sizes_are_those_given_and_glibcs_a_1024th_within_its_fast_path),
    cmocka_unit_test(every_plan_of_one_load_is_the_same),
};

TESTING_MAIN(tests)
