/* SPDX-License-Identifier: MIT
 *
 * What the tests of the race detector share: named kernels, a piece of device memory in which blocks are noted as a
 * pool would give them, and checks that show what was found.
 */
#ifndef SIM_DRIVER_RACES_H
#define SIM_DRIVER_RACES_H

#include "fixture.h"

enum { BLOCK_BYTES = 4096 };

/* Memory for the tests' own blocks, in the current context, never noted as a whole; the detector starts. */
static inline CUdeviceptr races_fresh(void) {
    CUdeviceptr memory;
    fresh_context();
    CHECK(cuMemAlloc(&memory, 64 * BLOCK_BYTES));
    sim_races_start();
    return memory;
}

static inline void use(CUstream stream, const char *name, CUdeviceptr address, size_t bytes, bool writes) {
    const struct sim_range range = {.address = address, .bytes = bytes, .writes = writes};
    const struct sim_kernel kernel = {.ranges = &range, .range_count = 1, .name = name};
    CHECK((CUresult)sim_launch(&kernel, stream));
}

static inline void writes(CUstream stream, const char *name, CUdeviceptr block) {
    use(stream, name, block, BLOCK_BYTES, true);
}

static inline void reads(CUstream stream, const char *name, CUdeviceptr block) {
    use(stream, name, block, BLOCK_BYTES, false);
}

static inline void allocated(CUdeviceptr block) {
    CHECK((CUresult)sim_block_allocated(block, BLOCK_BYTES));
}

static inline void allocated_async(CUdeviceptr block, CUstream stream) {
    CHECK((CUresult)sim_block_allocated_async(block, BLOCK_BYTES, stream));
}

static inline void freed(CUdeviceptr block) {
    CHECK((CUresult)sim_block_freed(block));
}

static inline void freed_async(CUdeviceptr block, CUstream stream) {
    CHECK((CUresult)sim_block_freed_async(block, stream));
}

static inline const char *side_name(const struct sim_race_side *side) {
    if (side->name != NULL) return side->name;
    return side->what != NULL ? side->what : "nothing";
}

static inline void no_race(void) {
    struct sim_race race;
    char text[512] = "";
    if (sim_races(&race, 1) > 0) sim_race_text(&race, text, sizeof text);
    assert_string_equal(text, "");
}

/* Exactly one race was found, between these: kernels by their names, the rest by what it is. */
static inline struct sim_race one_race(enum sim_race_kind kind, const char *earlier, const char *later) {
    struct sim_race race = {.kind = SIM_RACE_KINDS};
    assert_int_equal(sim_races(&race, 1), 1);
    assert_int_equal(race.kind, kind);
    assert_string_equal(side_name(&race.earlier), earlier);
    assert_string_equal(side_name(&race.later), later);
    return race;
}

/* Stream `later` comes after what `earlier` was given so far. */
static inline void order(CUstream earlier, CUstream later) {
    CUevent event;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventRecord(event, earlier));
    CHECK(cuStreamWaitEvent(later, event, 0));
    CHECK(cuEventDestroy(event));
}

#endif
