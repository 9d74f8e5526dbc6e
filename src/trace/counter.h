/* SPDX-License-Identifier: MIT
 *
 * The processor's counter that times in a trace are of, where it has one that runs at one speed on all processors; else
 * CLOCK_MONOTONIC. Internal to src/trace.
 */
#ifndef POOLCUDA_TRACE_COUNTER_H
#define POOLCUDA_TRACE_COUNTER_H

#include <stdint.h>
#include <time.h>

#include "poolcuda/trace.h"

static inline uint64_t counter_clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

#if defined(__x86_64__)

#include <cpuid.h>
#include <x86intrin.h>

#define COUNTER_SHIFT 4u

/* Without the invariant counter, which virtual machines may lack, times are the clock's. */
static inline enum poolcuda_trace_counter counter_choose(void) {
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & 1u << 8) ? POOLCUDA_TRACE_TSC : POOLCUDA_TRACE_NANOSECONDS;
}

static inline uint64_t counter_processor(void) {
    return __rdtsc();
}

/* About as many counts as a microsecond has. */
static inline uint64_t counter_microsecond(void) {
    return 2048;
}

#elif defined(__aarch64__)

#define COUNTER_SHIFT 0u /* 24 MHz to 1 GHz */

static inline enum poolcuda_trace_counter counter_choose(void) {
    return POOLCUDA_TRACE_CNTVCT;
}

static inline uint64_t counter_processor(void) {
    uint64_t value;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
    return value;
}

static inline uint64_t counter_microsecond(void) {
    uint64_t a_second;
    __asm__("mrs %0, cntfrq_el0" : "=r"(a_second));
    return a_second / 1000000;
}

#else

#define COUNTER_SHIFT 0u

static inline enum poolcuda_trace_counter counter_choose(void) {
    return POOLCUDA_TRACE_NANOSECONDS;
}

static inline uint64_t counter_processor(void) {
    return 0;
}

static inline uint64_t counter_microsecond(void) {
    return 1000;
}

#endif

static inline uint64_t counter_now(enum poolcuda_trace_counter kind) {
    return __builtin_expect(kind != POOLCUDA_TRACE_NANOSECONDS, 1) ? counter_processor()
                                                                   : counter_clock_ns(CLOCK_MONOTONIC);
}

/* Another one in each of the kernel's ticks (1 to 10 ms): a few times cheaper than the counter. */
static inline uint64_t counter_tick(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec << 30 | (uint64_t)now.tv_nsec;
}

#endif
