/* SPDX-License-Identifier: MIT
 *
 * Taking samples, and raising their counters to what was told before.
 */
#include "samples.h"

#include <stdlib.h>
#include <string.h>

#include "memory.h"

static bool is_same(const struct sample_key *a, const struct sample_key *b) {
    return a->inode == b->inode && a->device == b->device && a->start_ticks == b->start_ticks && a->pool == b->pool &&
           a->generation == b->generation;
}

static struct sample_key key_of(const struct process *process) {
    return (struct sample_key){
        .device = process->file.device, .inode = process->file.inode, .start_ticks = process->file.start_ticks};
}

static void keep(uint64_t *now, uint64_t before) {
    /* What lies above is told to be unknown. */
    if (before <= INT64_MAX && *now < before) *now = before;
}

static void keep_all(uint64_t *now, const uint64_t *before, size_t count) {
    for (size_t i = 0; i < count; i++) keep(&now[i], before[i]);
}

static void keep_counters(struct counters *now, const struct counters *before) {
#define KEEP(name, unit, kind, help) keep(&now->name, before->name);
    POOLCUDA_CELL_COUNTERS(KEEP)
#undef KEEP
}

#define KEEP_COUNTER(name) keep(&now->name, before->name);
#define KEEP_GAUGE(name)
#define KEEP_PEAK(name)
#define KEEP_TAG(name)
#define KEEP(name, unit, kind, help) KEEP_##kind(name)

static void keep_figures(struct poolcuda_pool *now, const struct poolcuda_pool *before) {
    POOLCUDA_POOL_FIGURES(KEEP)
    keep_all(now->hit_ns, before->hit_ns, POOLCUDA_LATENCY_BUCKETS);
    keep_all(now->miss_ns, before->miss_ns, POOLCUDA_LATENCY_BUCKETS);
}

static void keep_fixed(struct poolcuda_fixed *now, const struct poolcuda_fixed *before) {
    POOLCUDA_FIXED_FIGURES(KEEP)
}

static void keep_class(struct class_sum *now, const struct class_sum *before) {
    keep(&now->allocs, before->allocs);
    keep(&now->frees, before->frees);
    keep(&now->hits, before->hits);
}

static void keep_stream(struct pool_sample *now, const struct stream_sum *before) {
    for (size_t i = 0; i < now->stream_count; i++)
        if (now->streams[i].stream == before->stream) keep_counters(&now->streams[i].counters, &before->counters);
}

static void keep_pool(struct pool_sample *now, const struct pool_sample *before) {
    keep_counters(&now->counters, &before->counters);
    keep_figures(&now->figures, &before->figures);
    for (size_t i = 0; i < POOLCUDA_SIZE_CLASSES; i++) keep_class(&now->classes[i], &before->classes[i]);
    for (size_t i = 0; i < now->fixed_count && i < before->fixed_count; i++)
        if (now->fixed[i].size_bytes == before->fixed[i].size_bytes) keep_fixed(&now->fixed[i], &before->fixed[i]);
    for (size_t i = 0; i < before->stream_count; i++) keep_stream(now, &before->streams[i]);
}

static void take_process(struct samples *samples, const struct process *process) {
    struct process_sample *sample = &samples->processes[samples->process_count++];
    *sample = (struct process_sample){.key = key_of(process), .process = process};
    memcpy(sample->pass_through, process->segment->header.pass_through, sizeof(sample->pass_through));
}

/* Two of one size cannot be told apart by their labels: the first one stands for them. */
static void take_fixed(struct pool_sample *sample) {
    sample->fixed = memory_new(sample->pool->fixed_count, sizeof(*sample->fixed));
    for (size_t i = 0; i < sample->pool->fixed_count; i++) {
        size_t same = 0;
        while (same < sample->fixed_count && sample->fixed[same].size_bytes != sample->pool->fixed[i].size_bytes)
            same++;
        if (same == sample->fixed_count) sample->fixed[sample->fixed_count++] = sample->pool->fixed[i];
    }
}

static void take_pool(struct samples *samples, const struct process *process, const struct segment_pool *pool) {
    struct pool_sample *sample = &samples->pools[samples->pool_count++];
    *sample = (struct pool_sample){.key = key_of(process), .process = process, .pool = pool};
    sample->key.pool = pool->number;
    sample->key.generation = pool->record.generation;
    derive_figures(pool, &sample->figures);
    derive_counters(pool, &sample->counters);
    derive_measures(&sample->figures, &sample->counters, &sample->measures);
    for (unsigned i = 0; i < POOLCUDA_SIZE_CLASSES; i++) derive_class(pool, i, &sample->classes[i]);
    take_fixed(sample);
    sample->stream_count = derive_streams(pool, &sample->streams);
}

/* Files of several names may claim to be one process's. */
static bool is_duplicate(const struct samples *samples, const struct process *process) {
    return samples->process_count != 0 && samples->processes[samples->process_count - 1].process->pid == process->pid;
}

static void take(struct samples *samples, const struct process *process) {
    if (process->liveness == LIVENESS_UNSEEN) samples->unseen++;
    if (process->liveness != LIVENESS_ALIVE) return;
    if (process->code != CODE_OK) {
        *(process->code == CODE_DENIED ? &samples->denied : &samples->damaged) += 1;
        return;
    }
    if (is_duplicate(samples, process)) {
        samples->duplicates++;
        return;
    }
    take_process(samples, process);
    for (size_t i = 0; i < process->segment->pool_count; i++) take_pool(samples, process, &process->segment->pools[i]);
}

static void keep_counters_of(struct samples *now, const struct samples *before) {
    for (size_t i = 0; i < now->process_count; i++)
        for (size_t j = 0; j < before->process_count; j++)
            if (is_same(&now->processes[i].key, &before->processes[j].key))
                keep_all(now->processes[i].pass_through, before->processes[j].pass_through, POOLCUDA_PASS_COUNT);
    for (size_t i = 0; i < now->pool_count; i++)
        for (size_t j = 0; j < before->pool_count; j++)
            if (is_same(&now->pools[i].key, &before->pools[j].key)) keep_pool(&now->pools[i], &before->pools[j]);
}

void samples_take(struct samples *samples, const struct collection *collection) {
    struct samples now = {.processes = memory_new(collection->count, sizeof(*now.processes))};
    size_t pools = 0;
    for (size_t i = 0; i < collection->count; i++)
        if (collection->processes[i].segment != NULL) pools += collection->processes[i].segment->pool_count;
    now.pools = memory_new(pools, sizeof(*now.pools));
    for (size_t i = 0; i < collection->count; i++) take(&now, &collection->processes[i]);
    keep_counters_of(&now, samples);
    samples_free(samples);
    *samples = now;
}

void samples_free(struct samples *samples) {
    for (size_t i = 0; i < samples->pool_count; i++) {
        free(samples->pools[i].fixed);
        free(samples->pools[i].streams);
    }
    free(samples->pools);
    free(samples->processes);
    *samples = (struct samples){0};
}
