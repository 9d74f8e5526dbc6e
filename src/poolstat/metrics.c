/* SPDX-License-Identifier: MIT
 *
 * The families, one after another over all processes, as the form wants it. Ratios are left to whoever asks: hits and
 * allocations, live and reserved bytes can be summed over processes, and ratios of them cannot.
 */
#include "metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "choose.h"
#include "memory.h"
#include "text.h"
#include "words.h"

#define PREFIX "poolcuda_"

/* A figure of the tables and where it stands. */
struct figure {
    const char *name, *help;
    enum { UNIT_BYTES, UNIT_COUNT, UNIT_NS, UNIT_RATIO } unit;
    enum { KIND_COUNTER, KIND_GAUGE, KIND_PEAK, KIND_TAG } kind;
    size_t offset;
};

#define FIGURE(name, unit, kind, help) \
    {#name, help, UNIT_##unit, KIND_##kind, offsetof(struct pool_sample, figures.name)},
#define COUNTER(name, unit, kind, help) \
    {#name, help, UNIT_##unit, KIND_##kind, offsetof(struct pool_sample, counters.name)},
#define MEASURE(name, unit, help) {#name, help, UNIT_##unit, KIND_GAUGE, offsetof(struct pool_sample, measures.name)},
#define FIXED(name, unit, kind, help) {#name, help, UNIT_##unit, KIND_##kind, offsetof(struct poolcuda_fixed, name)},
#define OF_CLASS(name, unit, kind, help) {#name, help, UNIT_##unit, KIND_##kind, offsetof(struct class_sum, name)},
#define OF_STREAM(name, unit, kind, help) \
    {#name, help, UNIT_##unit, KIND_##kind, offsetof(struct stream_sum, counters.name)},

static const struct figure pool_figures[] = {DERIVE_MEASURES(MEASURE) POOLCUDA_POOL_FIGURES(FIGURE)
                                                 POOLCUDA_CELL_COUNTERS(COUNTER)};
static const struct figure fixed_figures[] = {POOLCUDA_FIXED_FIGURES(FIXED)};
static const struct figure stream_figures[] = {POOLCUDA_CELL_COUNTERS(OF_STREAM)};
static const struct figure class_figures[] = {
    OF_CLASS(live_bytes, BYTES, GAUGE, "held by the program in blocks of this size class")
        OF_CLASS(cached_bytes, BYTES, GAUGE, "free blocks whose size is in the class")
            OF_CLASS(allocs, COUNT, COUNTER, "blocks of the class handed to the program")
                OF_CLASS(frees, COUNT, COUNTER, "blocks of the class freed by the program")
                    OF_CLASS(hits, COUNT, COUNTER, "allocations of the class served without a driver allocation")};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Histograms have every other bound of the tables, which is still a factor of four. */
#define FIRST_SIZE_BOUND 0u
#define LAST_SIZE_BOUND 28u
#define FIRST_LATENCY_BOUND 5u
#define LAST_LATENCY_BOUND 29u
#define BOUND_STEP 2u

/* One scrape. */
struct scrape {
    struct exposition *out;
    const struct options *options;
    const struct samples *samples;
    struct labels *processes, *pools; /* of each sample */
};

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct labels process_labels(const struct process *process) {
    const struct poolcuda_header *header = &process->segment->header;
    struct labels labels = {0};
    char *command = text_safe(header->command, sizeof(header->command));
    labels_add_number(&labels, "pid", process->pid);
    labels_add(&labels, "command", command);
    free(command);
    return labels;
}

static struct labels pool_labels(const struct labels *process, const struct segment_pool *pool) {
    struct labels labels = labels_copy(process);
    const char *kind = words_kind(&pool->record);
    if (pool->record.device >= 0)
        labels_add_number(&labels, "gpu", (uint64_t)pool->record.device);
    else
        labels_add(&labels, "gpu", "");
    labels_add_number(&labels, "pool", pool->number);
    labels_add(&labels, "kind", kind == NULL ? "" : kind);
    return labels;
}

static void make_labels(struct scrape *scrape) {
    const struct samples *samples = scrape->samples;
    scrape->processes = memory_new(samples->process_count, sizeof(*scrape->processes));
    scrape->pools = memory_new(samples->pool_count, sizeof(*scrape->pools));
    size_t pool = 0;
    for (size_t i = 0; i < samples->process_count; i++) {
        const struct process *process = samples->processes[i].process;
        scrape->processes[i] = process_labels(process);
        for (; pool < samples->pool_count && samples->pools[pool].process == process; pool++)
            scrape->pools[pool] = pool_labels(&scrape->processes[i], samples->pools[pool].pool);
    }
}

static void free_labels(struct scrape *scrape) {
    for (size_t i = 0; i < scrape->samples->process_count; i++) labels_free(&scrape->processes[i]);
    for (size_t i = 0; i < scrape->samples->pool_count; i++) labels_free(&scrape->pools[i]);
    free(scrape->processes);
    free(scrape->pools);
}

/* ---- processes ----------------------------------------------------------------------------------------------------
 */

static void write_process_info(const struct scrape *scrape) {
    static const char name[] = PREFIX "process_info";
    exposition_family(scrape->out, name, FAMILY_GAUGE, "1 for each process that runs on the pool");
    for (size_t i = 0; i < scrape->samples->process_count; i++) {
        const struct process *process = scrape->samples->processes[i].process;
        const struct poolcuda_header *header = &process->segment->header;
        struct labels labels = labels_copy(&scrape->processes[i]);
        char *version = text_safe(header->library_version, sizeof(header->library_version));
        labels_add_number(&labels, "namespace_pid", process->inner_pid);
        labels_add_number(&labels, "uid", process->file.owner);
        labels_add(&labels, "library_version", version);
        labels_add(&labels, "cuda_driver", header->driver_version == 0 ? "" : text_cuda(header->driver_version).s);
        exposition_number(scrape->out, name, "", &labels, 1);
        free(version);
        labels_free(&labels);
    }
}

/* UINT64_MAX: unknown, and no sample. */
static void write_process_times(const struct scrape *scrape, const char *name, const char *help,
                                uint64_t (*get)(const struct segment *segment)) {
    exposition_family(scrape->out, name, FAMILY_GAUGE, help);
    for (size_t i = 0; i < scrape->samples->process_count; i++) {
        const uint64_t ns = get(scrape->samples->processes[i].process->segment);
        if (ns <= INT64_MAX) exposition_seconds(scrape->out, name, "", &scrape->processes[i], ns);
    }
}

static uint64_t created_ns(const struct segment *segment) {
    return segment->header.created_unix_ns == 0 ? UINT64_MAX : segment->header.created_unix_ns;
}

static uint64_t heartbeat_age(const struct segment *segment) {
    return derive_age(segment, segment->header.heartbeat_ns);
}

static uint64_t time_in_driver(const struct segment *segment) {
    const uint64_t age = derive_age(segment, segment->header.in_driver_since_ns);
    return age == UINT64_MAX ? 0 : age;
}

static void write_stuck(const struct scrape *scrape) {
    static const char name[] = PREFIX "process_stuck";
    exposition_family(scrape->out, name, FAMILY_GAUGE, "1 when its pool has been inside one driver call for over 10 s");
    for (size_t i = 0; i < scrape->samples->process_count; i++)
        exposition_number(scrape->out, name, "", &scrape->processes[i],
                          derive_is_stuck(scrape->samples->processes[i].process->segment));
}

static void write_pass_through(const struct scrape *scrape) {
#define REASON(name, help) #name,
    static const char *const reasons[] = {POOLCUDA_PASS_REASONS(REASON)};
#undef REASON
    static const char name[] = PREFIX "pass_through_total";
    exposition_family(scrape->out, name, FAMILY_COUNTER, "calls that went to the driver untouched, by reason");
    for (size_t i = 0; i < scrape->samples->process_count; i++)
        for (size_t reason = 0; reason < COUNT(reasons); reason++) {
            const uint64_t value = scrape->samples->processes[i].pass_through[reason];
            struct labels labels = labels_copy(&scrape->processes[i]);
            labels_add(&labels, "reason", reasons[reason]);
            if (value <= INT64_MAX) exposition_number(scrape->out, name, "", &labels, value);
            labels_free(&labels);
        }
}

static void write_processes(const struct scrape *scrape) {
    write_process_info(scrape);
    write_process_times(scrape, PREFIX "process_created_timestamp_seconds", "time of its first CUDA call, since 1970",
                        created_ns);
    write_process_times(scrape, PREFIX "process_heartbeat_age_seconds",
                        "time since the library last noted that it works (slow calls, and one in 64)", heartbeat_age);
    write_process_times(scrape, PREFIX "process_in_driver_seconds",
                        "how long the pool's present driver call has lasted; 0 when there is none", time_in_driver);
    write_stuck(scrape);
    write_pass_through(scrape);
}

/* ---- pools --------------------------------------------------------------------------------------------------------
 */

static void write_pool_info(const struct scrape *scrape) {
    static const char name[] = PREFIX "pool_info";
    exposition_family(scrape->out, name, FAMILY_GAUGE, "1 for each pool, with the names of its GPU");
    for (size_t i = 0; i < scrape->samples->pool_count; i++) {
        const struct poolcuda_pool *record = &scrape->samples->pools[i].pool->record;
        const struct text uuid = words_uuid(record);
        struct labels labels = labels_copy(&scrape->pools[i]);
        char *pci = text_safe(record->pci, sizeof(record->pci));
        labels_add(&labels, "uuid", uuid.s[0] == '-' ? "" : uuid.s);
        labels_add(&labels, "pci", pci);
        exposition_number(scrape->out, name, "", &labels, 1);
        free(pci);
        labels_free(&labels);
    }
}

static void write_pool_numbers(const struct scrape *scrape, const char *name, const char *help,
                               uint64_t (*get)(const struct segment_pool *pool)) {
    exposition_family(scrape->out, name, FAMILY_GAUGE, help);
    for (size_t i = 0; i < scrape->samples->pool_count; i++) {
        const uint64_t value = get(scrape->samples->pools[i].pool);
        if (value <= INT64_MAX) exposition_number(scrape->out, name, "", &scrape->pools[i], value);
    }
}

static uint64_t is_approximate(const struct segment_pool *pool) {
    return pool->approximate;
}

static uint64_t limit(const struct segment_pool *pool) {
    return pool->record.limited ? pool->record.limit_bytes : UINT64_MAX;
}

static uint64_t gpu_memory(const struct segment_pool *pool) {
    return pool->record.device_total_bytes == 0 ? UINT64_MAX : pool->record.device_total_bytes;
}

/* "driver_ns", a counter: "poolcuda_driver_seconds_total". The caller frees it. */
static char *family_name(const char *group, const struct figure *figure) {
    const size_t length = strlen(figure->name) - (figure->unit == UNIT_NS ? strlen("_ns") : 0);
    return memory_format(PREFIX "%s%.*s%s%s", group, (int)length, figure->name,
                         figure->unit == UNIT_NS ? "_seconds" : "", figure->kind == KIND_COUNTER ? "_total" : "");
}

static void begin_figure(const struct scrape *scrape, const char *name, const struct figure *figure) {
    exposition_family(scrape->out, name, figure->kind == KIND_COUNTER ? FAMILY_COUNTER : FAMILY_GAUGE, figure->help);
}

static void write_value(const struct scrape *scrape, const char *name, const struct figure *figure,
                        const struct labels *labels, const void *record) {
    uint64_t value;
    memcpy(&value, (const char *)record + figure->offset, sizeof(value));
    if (value > INT64_MAX) return; /* garbage */
    if (figure->unit == UNIT_NS)
        exposition_seconds(scrape->out, name, "", labels, value);
    else
        exposition_number(scrape->out, name, "", labels, value);
}

static void write_figures(const struct scrape *scrape) {
    for (size_t i = 0; i < COUNT(pool_figures); i++) {
        if (pool_figures[i].unit == UNIT_RATIO) continue;
        char *name = family_name("", &pool_figures[i]);
        begin_figure(scrape, name, &pool_figures[i]);
        for (size_t pool = 0; pool < scrape->samples->pool_count; pool++)
            write_value(scrape, name, &pool_figures[i], &scrape->pools[pool], &scrape->samples->pools[pool]);
        free(name);
    }
}

static void write_fixed(const struct scrape *scrape) {
    for (size_t i = 0; i < COUNT(fixed_figures); i++) {
        if (fixed_figures[i].offset == offsetof(struct poolcuda_fixed, size_bytes)) continue; /* the label */
        char *name = family_name("fixed_", &fixed_figures[i]);
        begin_figure(scrape, name, &fixed_figures[i]);
        for (size_t pool = 0; pool < scrape->samples->pool_count; pool++) {
            const struct pool_sample *sample = &scrape->samples->pools[pool];
            for (size_t j = 0; j < sample->fixed_count; j++) {
                struct labels labels = labels_copy(&scrape->pools[pool]);
                labels_add_number(&labels, "size_bytes", sample->fixed[j].size_bytes);
                write_value(scrape, name, &fixed_figures[i], &labels, &sample->fixed[j]);
                labels_free(&labels);
            }
        }
        free(name);
    }
}

/* ---- histograms ---------------------------------------------------------------------------------------------------
 */

/* False when the numbers cannot be. */
static bool accumulate(const uint64_t *counts, unsigned count, uint64_t *sums) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < count; i++) {
        if (counts[i] > INT64_MAX || (sum += counts[i]) > INT64_MAX) return false;
        sums[i] = sum;
    }
    return true;
}

static void write_sizes(const struct scrape *scrape) {
    static const char name[] = PREFIX "alloc_size_bytes";
    exposition_family(scrape->out, name, FAMILY_HISTOGRAM, "rounded size of the blocks handed to the program");
    for (size_t pool = 0; pool < scrape->samples->pool_count; pool++) {
        const struct pool_sample *sample = &scrape->samples->pools[pool];
        const struct labels *labels = &scrape->pools[pool];
        uint64_t allocs[POOLCUDA_SIZE_CLASSES], sums[POOLCUDA_SIZE_CLASSES];
        for (unsigned i = 0; i < POOLCUDA_SIZE_CLASSES; i++) allocs[i] = sample->classes[i].allocs;
        if (!accumulate(allocs, POOLCUDA_SIZE_CLASSES, sums) || sample->counters.alloc_live_bytes > INT64_MAX) continue;
        for (unsigned i = FIRST_SIZE_BOUND; i <= LAST_SIZE_BOUND; i += BOUND_STEP)
            exposition_bucket(scrape->out, name, labels, text_count(derive_class_bytes(i)).s, sums[i]);
        exposition_bucket(scrape->out, name, labels, "+Inf", sums[POOLCUDA_SIZE_CLASSES - 1]);
        exposition_number(scrape->out, name, "_sum", labels, sample->counters.alloc_live_bytes);
        exposition_number(scrape->out, name, "_count", labels, sums[POOLCUDA_SIZE_CLASSES - 1]);
    }
}

/* Without _sum: the pool counts in buckets alone, and a sum made up of their middles would be no figure of its. */
static void write_latencies(const struct scrape *scrape, const char *name, const char *help, size_t offset) {
    exposition_family(scrape->out, name, FAMILY_HISTOGRAM, help);
    for (size_t pool = 0; pool < scrape->samples->pool_count; pool++) {
        const struct labels *labels = &scrape->pools[pool];
        uint64_t counts[POOLCUDA_LATENCY_BUCKETS], sums[POOLCUDA_LATENCY_BUCKETS];
        memcpy(counts, (const char *)&scrape->samples->pools[pool] + offset, sizeof(counts));
        if (!accumulate(counts, POOLCUDA_LATENCY_BUCKETS, sums)) continue;
        for (unsigned i = FIRST_LATENCY_BOUND; i <= LAST_LATENCY_BOUND; i += BOUND_STEP)
            /* A bucket ends before its bound, and `le` takes in its own: whole nanoseconds are counted. */
            exposition_bucket(scrape->out, name, labels, exposition_ns(derive_bucket_end(i) - 1).s, sums[i]);
        exposition_bucket(scrape->out, name, labels, "+Inf", sums[POOLCUDA_LATENCY_BUCKETS - 1]);
        exposition_number(scrape->out, name, "_count", labels, sums[POOLCUDA_LATENCY_BUCKETS - 1]);
    }
}

static void write_histograms(const struct scrape *scrape) {
    write_sizes(scrape);
    write_latencies(scrape, PREFIX "hit_latency_seconds",
                    "time that hits took; one call in 64 is timed, and the sum is not known",
                    offsetof(struct pool_sample, figures.hit_ns));
    write_latencies(scrape, PREFIX "miss_latency_seconds",
                    "time that misses took; every one is timed, and the sum is not known",
                    offsetof(struct pool_sample, figures.miss_ns));
}

/* ---- on request ---------------------------------------------------------------------------------------------------
 */

static void write_class(const struct scrape *scrape, const char *name, const struct figure *figure, size_t pool) {
    for (unsigned class = 0; class < POOLCUDA_SIZE_CLASSES; class ++) {
        const struct class_sum *sum = &scrape->samples->pools[pool].classes[class];
        const uint64_t bytes = derive_class_bytes(class);
        if (sum->allocs == 0 && sum->cached_bytes == 0) continue; /* never used */
        struct labels labels = labels_copy(&scrape->pools[pool]);
        labels_add(&labels, "class_bytes", bytes == UINT64_MAX ? "+Inf" : text_count(bytes).s);
        write_value(scrape, name, figure, &labels, sum);
        labels_free(&labels);
    }
}

static void write_classes(const struct scrape *scrape) {
    for (size_t i = 0; i < COUNT(class_figures); i++) {
        char *name = family_name("size_class_", &class_figures[i]);
        begin_figure(scrape, name, &class_figures[i]);
        for (size_t pool = 0; pool < scrape->samples->pool_count; pool++)
            write_class(scrape, name, &class_figures[i], pool);
        free(name);
    }
}

static void write_stream(const struct scrape *scrape, const char *name, const struct figure *figure, size_t pool) {
    const struct pool_sample *sample = &scrape->samples->pools[pool];
    for (size_t i = 0; i < sample->stream_count; i++) {
        struct labels labels = labels_copy(&scrape->pools[pool]);
        labels_add(&labels, "stream", words_stream(sample->streams[i].stream).s);
        labels_add(&labels, "stream_id", text_handle(sample->streams[i].stream).s);
        write_value(scrape, name, figure, &labels, &sample->streams[i]);
        labels_free(&labels);
    }
}

static void write_streams(const struct scrape *scrape) {
    for (size_t i = 0; i < COUNT(stream_figures); i++) {
        char *name = family_name("stream_", &stream_figures[i]);
        begin_figure(scrape, name, &stream_figures[i]);
        for (size_t pool = 0; pool < scrape->samples->pool_count; pool++)
            write_stream(scrape, name, &stream_figures[i], pool);
        free(name);
    }
}

/* ---- all ----------------------------------------------------------------------------------------------------------
 */

static void write_count(struct exposition *out, const char *state, size_t count) {
    struct labels labels = {0};
    labels_add(&labels, "state", state);
    exposition_number(out, PREFIX "exporter_processes", "", &labels, count);
    labels_free(&labels);
}

static void write_exporter(const struct metrics *metrics, struct exposition *out, uint64_t begun_ns) {
    struct labels labels = {0};
    labels_add(&labels, "version", POOLSTAT_VERSION);
    labels_add_number(&labels, "layout", POOLCUDA_LAYOUT_VERSION);
    exposition_family(out, PREFIX "exporter_build_info", FAMILY_GAUGE, "1, with the release of poolstat");
    exposition_number(out, PREFIX "exporter_build_info", "", &labels, 1);
    labels_free(&labels);
    exposition_family(out, PREFIX "exporter_processes", FAMILY_GAUGE,
                      "processes on the pool: seen; not shown since they are denied (of other users), damaged, unseen "
                      "(in other pid namespaces), or a duplicate (a second segment of a process)");
    write_count(out, "seen", metrics->samples.process_count);
    write_count(out, "denied", metrics->samples.denied);
    write_count(out, "damaged", metrics->samples.damaged);
    write_count(out, "unseen", metrics->samples.unseen);
    write_count(out, "duplicate", metrics->samples.duplicates);
    exposition_family(out, PREFIX "exporter_scrapes_total", FAMILY_COUNTER, "times that figures were read for metrics");
    exposition_number(out, PREFIX "exporter_scrapes_total", "", NULL, metrics->scrapes);
    exposition_family(out, PREFIX "exporter_scrape_duration_seconds", FAMILY_GAUGE,
                      "time that it took to read the figures and to write them here");
    exposition_seconds(out, PREFIX "exporter_scrape_duration_seconds", "", NULL, now_ns() - begun_ns);
}

void metrics_write(struct metrics *metrics, const struct options *options, struct exposition *out) {
    const uint64_t begun_ns = now_ns();
    struct collection collection;
    struct scrape scrape = {.out = out, .options = options, .samples = &metrics->samples};
    choose_collect(&options->choice, &collection);
    samples_take(&metrics->samples, &collection);
    metrics->scrapes++;
    exposition_reserve(out, out->length + metrics->length + metrics->length / 8);
    make_labels(&scrape);
    write_processes(&scrape);
    write_pool_info(&scrape);
    write_pool_numbers(&scrape, PREFIX "pool_approximate",
                       "1 when its figures are not of one moment, since the process was busy", is_approximate);
    write_pool_numbers(&scrape, PREFIX "limit_bytes", "most that may be reserved (POOL_LIMIT_MB)", limit);
    write_pool_numbers(&scrape, PREFIX "gpu_memory_bytes", "memory of the pool's GPU", gpu_memory);
    write_figures(&scrape);
    write_fixed(&scrape);
    write_histograms(&scrape);
    if (options->with_size_classes) write_classes(&scrape);
    if (options->with_streams) write_streams(&scrape);
    write_exporter(metrics, out, begun_ns);
    metrics->length = out->length;
    free_labels(&scrape);
    collect_free(&collection);
}

void metrics_free(struct metrics *metrics) {
    samples_free(&metrics->samples);
}
