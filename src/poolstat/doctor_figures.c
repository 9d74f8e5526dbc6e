/* SPDX-License-Identifier: MIT
 *
 * `doctor PID`: what the figures tell. Which doors were asked, what went to the driver untouched and why, and what
 * keeps a pool from being of use.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "derive.h"
#include "diagnosis.h"
#include "poolcuda/stats.h"
#include "text.h"

#define FEW_HITS 0.5
#define ENOUGH_ALLOCS 1000u /* to judge the hits */

struct totals {
    struct counters counters;
    uint64_t async_allocs, oom_failures, bad_frees;
};

static struct totals sum_up(const struct segment *segment) {
    struct totals totals = {0};
    for (size_t i = 0; i < segment->pool_count; i++) {
        const struct segment_pool *pool = &segment->pools[i];
        struct counters counters;
        derive_counters(pool, &counters);
#define ADD(name, unit, kind, help) totals.counters.name += counters.name;
        POOLCUDA_CELL_COUNTERS(ADD)
#undef ADD
        if (pool->record.kind == POOLCUDA_KIND_ASYNC) totals.async_allocs += counters.allocs;
        totals.oom_failures += pool->record.oom_failures;
        totals.bad_frees += pool->record.bad_frees;
    }
    return totals;
}

static const char *plural(uint64_t count) {
    return count == 1 ? "" : "s";
}

static bool setting_is(const struct segment *segment, const char *name, const char *value) {
    for (size_t i = 0; i < segment->config_count; i++)
        if (strcmp(segment->config[i].name, name) == 0) return strcmp(segment->config[i].value, value) == 0;
    return false;
}

/* ---- what passed through ---- */

static void explain_async(struct diagnosis *diagnosis, const struct segment *segment, uint64_t calls,
                          const struct totals *totals) {
    const uint32_t driver = segment->header.driver_version;
    const char *some = totals->async_allocs > 0 ? ", others are pooled" : "";
    if (setting_is(segment, "POOL_ASYNC", "0")) {
        advise(diagnose(diagnosis, SEVERITY_NOTE, "async_off",
                        "POOL_ASYNC=0 left %" PRIu64 " call%s of cudaMallocAsync to the driver.", calls, plural(calls)),
               "Start the program without it to pool them.");
    } else if (driver != 0 && driver < 12000) {
        advise(diagnose(diagnosis, SEVERITY_NOTE, "async_given_up",
                        "The driver got %" PRIu64 " call%s of cudaMallocAsync%s: this driver (%s) cannot tell "
                        "streams apart whose creation was not seen, or the current memory pool can be exported.",
                        calls, plural(calls), some, text_cuda(driver).s),
               "Use a driver of CUDA 12.0 or later.");
    } else {
        advise(diagnose(diagnosis, SEVERITY_NOTE, "async_given_up",
                        "The driver got %" PRIu64 " call%s of cudaMallocAsync%s: the program's own memory pool "
                        "was current, and can be exported to other processes whole.",
                        calls, plural(calls), some),
               "Make the default pool current again (cudaDeviceSetMemPool), or create the pool without handle types.");
    }
}

struct reason {
    enum poolcuda_pass_reason reason;
    enum severity severity;
    const char *id, *what, *advice;
};

/* What is the program's own affair (a free of foreign memory, size 0) is none. */
static const struct reason reasons[] = {
    {POOLCUDA_PASS_forked, SEVERITY_PROBLEM, "forked_child",
     "the process was forked by a pooled process, and CUDA does not live on in a forked child",
     "Fork before the first CUDA call, or start children anew (Python: the start method spawn)."},
    {POOLCUDA_PASS_no_context, SEVERITY_NOTE, "no_context", "no context was current, or a destroyed one",
     "Nothing need be done when they are few; else make a context current (cudaSetDevice) before the call."},
    {POOLCUDA_PASS_created_context, SEVERITY_NOTE, "created_context",
     "the context is one of which the pool did not see the creation, or a green one",
     "Use the device's primary context, as the CUDA runtime does."},
    {POOLCUDA_PASS_closed_context, SEVERITY_NOTE, "closed_context", "the context was being reset or released",
     "Nothing need be done when they are few."},
    {POOLCUDA_PASS_capture, SEVERITY_NOTE, "capture", "a stream was being captured into a graph",
     "Allocate before the capture what can be."},
    {POOLCUDA_PASS_no_host_memory, SEVERITY_PROBLEM, "no_host_memory", "host memory ran out",
     "Give the process more host memory."},
    {POOLCUDA_PASS_no_driver, SEVERITY_PROBLEM, "no_driver", "an entry point that the pool needs is missing beneath it",
     "Use a newer driver; POOL_LOG=1 names what is missing."},
};

static void explain_passed(struct diagnosis *diagnosis, const struct segment *segment, const struct totals *totals) {
    const uint64_t *passed = segment->header.pass_through;
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        const struct reason *reason = &reasons[i];
        if (passed[reason->reason] == 0) continue;
        advise(diagnose(diagnosis, reason->severity, reason->id, "The driver got %" PRIu64 " call%s: %s.",
                        passed[reason->reason], plural(passed[reason->reason]), reason->what),
               "%s", reason->advice);
    }
    if (passed[POOLCUDA_PASS_async] != 0) explain_async(diagnosis, segment, passed[POOLCUDA_PASS_async], totals);
    /* The environment may have been changed by the program itself: so what was counted is asked too. */
    if (passed[POOLCUDA_PASS_disabled] != 0 && !diagnosis_has(diagnosis, "disabled"))
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "disabled", "POOL_ENABLE=0: the driver got %" PRIu64 " call%s.",
                        passed[POOLCUDA_PASS_disabled], plural(passed[POOLCUDA_PASS_disabled])),
               "Start the program without it.");
    if (passed[POOLCUDA_PASS_tool] != 0 && !diagnosis_has(diagnosis, "compute_sanitizer"))
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "compute_sanitizer",
                        "compute-sanitizer is loaded: the driver got %" PRIu64 " call%s.", passed[POOLCUDA_PASS_tool],
                        plural(passed[POOLCUDA_PASS_tool])),
               "Run without compute-sanitizer, or with POOL_ENABLE=1.");
}

/* ---- doors ---- */

static void look_at_doors(struct diagnosis *diagnosis, const struct segment *segment, const struct totals *totals) {
    const struct poolcuda_header *header = &segment->header;
    const uint64_t runtime = totals->counters.runtime_door, driver = totals->counters.driver_door;
    if (header->runtime_only != 0) {
        diagnose(
            diagnosis, SEVERITY_NOTE, "runtime_only",
            "No driver lies beneath its CUDA runtime (an emulator, a mock): calls come by the runtime door alone.");
        return;
    }
    if (header->symbols_hooked != 0 || driver != 0) {
        diagnose(diagnosis, SEVERITY_OK, "driver_door",
                 "The driver door was asked: %" PRIu64 " look-ups were answered with a function of the pool.",
                 header->symbols_hooked);
        return;
    }
    struct finding *finding = diagnose(
        diagnosis, runtime != 0 ? SEVERITY_NOTE : SEVERITY_PROBLEM, "driver_door_unasked",
        "The driver door was never asked (%" PRIu64 " look-ups through cuGetProcAddress, none answered with a "
        "function of the pool)%s.",
        header->proc_address_lookups,
        runtime != 0 ? ": only calls of a shared CUDA runtime are pooled" : ", and no call came by the runtime door");
    advise(finding, "Look whether another library's dlsym stands before the pool's in LD_PRELOAD, or the driver is "
                    "opened with RTLD_DEEPBIND.");
}

/* ---- what went badly ---- */

static void look_at_hits(struct diagnosis *diagnosis, const struct segment *segment, const struct totals *totals) {
    const double rate = derive_ratio(totals->counters.hits, totals->counters.allocs);
    struct advice best = {0};
    if (totals->counters.allocs < ENOUGH_ALLOCS || rate >= FEW_HITS) return;
    for (size_t i = 0; i < segment->pool_count; i++) {
        struct advice advice;
        if (derive_advice(&segment->pools[i], &advice) && advice.driver_calls > best.driver_calls) best = advice;
    }
    struct finding *finding =
        diagnose(diagnosis, SEVERITY_NOTE, "few_hits", "Only %s of %" PRIu64 " allocations were hits.",
                 text_ratio(rate).s, totals->counters.allocs);
    if (best.driver_calls != 0)
        advise(finding, "POOL_PREALLOC_MB=%" PRIu64 " would have saved %" PRIu64 " driver call%s.",
               best.prealloc_bytes >> 20, best.driver_calls, plural(best.driver_calls));
    else
        advise(finding, "See its events: poolstat show PID; a limit (POOL_LIMIT_MB, POOL_TRIM_MB) may be too low.");
}

static void look_at_failures(struct diagnosis *diagnosis, const struct segment *segment, const struct totals *totals) {
    uint64_t fallbacks = 0;
    for (size_t i = 0; i < segment->event_count; i++) fallbacks += segment->events[i].type == POOLCUDA_EVENT_fallback;
    if (fallbacks != 0)
        advise(diagnose(diagnosis, SEVERITY_NOTE, "fallback",
                        "Of the last events %" PRIu64 " tell that something could not be pooled and was left to the "
                        "driver.",
                        fallbacks),
               "POOL_LOG=1 says what.");
    if (totals->oom_failures != 0)
        advise(diagnose(diagnosis, SEVERITY_NOTE, "out_of_memory",
                        "%" PRIu64 " allocation%s failed for lack of device memory.", totals->oom_failures,
                        plural(totals->oom_failures)),
               "poolstat show PID says of the last ones what was live, cached and free.");
    if (totals->bad_frees != 0)
        advise(diagnose(diagnosis, SEVERITY_NOTE, "bad_frees",
                        "The pool refused %" PRIu64 " free%s of an address in a segment that is no live block.",
                        totals->bad_frees, plural(totals->bad_frees)),
               "The program frees twice, or what it did not allocate: POOL_LOG=1 names the addresses.");
    if (derive_is_stuck(segment))
        advise(diagnose(diagnosis, SEVERITY_NOTE, "in_driver", "It has been inside one driver call for %s.",
                        text_duration(derive_age(segment, segment->header.in_driver_since_ns)).s),
               "The GPU or the driver holds it up, not the pool: see what runs on the device.");
}

void doctor_figures(struct diagnosis *diagnosis, const struct process *process) {
    const struct segment *segment = process->segment;
    const struct totals totals = sum_up(segment);
    const char *version = segment->header.library_version;
    char library[sizeof(segment->header.library_version) + 1] = {0};
    memcpy(library, version, sizeof(segment->header.library_version));
    diagnose(diagnosis, SEVERITY_OK, "figures", "Its figures can be read: %s", process->file.path);
    if (strcmp(library, POOLSTAT_VERSION) != 0)
        advise(diagnose(diagnosis, SEVERITY_NOTE, "versions_differ",
                        "The library in it is of release %s, poolstat of %s; both know these figures.", library,
                        POOLSTAT_VERSION),
               "Install both from one release.");
    explain_passed(diagnosis, segment, &totals);
    if (totals.counters.allocs != 0) {
        diagnosis->verdict = VERDICT_POOLED;
        diagnose(diagnosis, SEVERITY_OK, "pooled", "%" PRIu64 " allocation%s came to the pool; hits: %s.",
                 totals.counters.allocs, plural(totals.counters.allocs),
                 text_ratio(derive_ratio(totals.counters.hits, totals.counters.allocs)).s);
    } else if (diagnosis_has_problem(diagnosis)) {
        diagnosis->verdict = VERDICT_NOT_POOLED;
    } else {
        diagnosis->verdict = VERDICT_NOT_YET;
        advise(diagnose(diagnosis, SEVERITY_NOTE, "no_allocation",
                        "CUDA calls were seen, but none that the pool could "
                        "serve."),
               "Look again when it has allocated device memory.");
    }
    if (totals.counters.allocs != 0 || segment->pool_count != 0) look_at_doors(diagnosis, segment, &totals);
    look_at_hits(diagnosis, segment, &totals);
    look_at_failures(diagnosis, segment, &totals);
}
