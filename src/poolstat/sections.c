/* SPDX-License-Identifier: MIT
 *
 * The sections of `show`. Lines of a figure are label, value, help; label and help come from the glossary.
 */
#include "sections.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "derive.h"
#include "fields.h"
#include "grid.h"
#include "poolcuda/variables.h"
#include "text.h"
#include "words.h"

#define INDENT 2u
#define VALUE_BYTES text_bytes
#define VALUE_COUNT text_count
#define VALUE_NS text_duration
#define VALUE_RATIO text_ratio

static void figure_columns(struct grid *grid) {
    grid_column(grid, "", GRID_LEFT);
    grid_column(grid, "", GRID_RIGHT);
    grid_elastic_column(grid, "", GRID_LEFT);
}

static void put_line(struct grid *grid, enum field_group group, const char *name, const char *value) {
    char *label = text_label(name);
    grid_put(grid, label);
    grid_put(grid, value);
    grid_put(grid, fields_help(group, name));
    free(label);
}

static void put_safe_line(struct grid *grid, enum field_group group, const char *name, const char *bytes, size_t size) {
    char *value = text_safe(bytes, size);
    put_line(grid, group, name, value[0] == '\0' ? "-" : value);
    free(value);
}

static void title(const char *text) {
    printf("\n%s\n", text);
}

static void print_figures(struct grid *grid, const struct options *options) {
    grid_print(grid, stdout, INDENT, options->width, false);
}

static void print_table(struct grid *grid, const struct options *options) {
    if (grid_rows(grid) == 0) printf("%*snone\n", (int)INDENT, "");
    grid_print(grid, stdout, INDENT, options->width, grid_rows(grid) != 0);
}

static struct text date(uint64_t unix_ns) {
    const time_t seconds = (time_t)(unix_ns / 1000000000u);
    struct tm local;
    struct text text = {"-"};
    if (unix_ns != 0 && localtime_r(&seconds, &local) != NULL)
        strftime(text.s, sizeof(text.s), "%Y-%m-%d %H:%M:%S", &local);
    return text;
}

static void print_process(const struct options *options, const struct process *process) {
    const struct segment *segment = process->segment;
    const struct poolcuda_header *header = &segment->header;
    const enum field_group group = FIELDS_PROCESS;
    struct grid grid = {0};
    char *command = text_safe(header->command, sizeof(header->command));
    char *path = text_safe(process->file.path, strlen(process->file.path));
    printf("%s\n%s\n\n%s\n", command, path, fields_title(group));
    free(command);
    free(path);
    figure_columns(&grid);
    put_line(&grid, group, "pid", words_pid(process) == 0 ? "-" : text_count(words_pid(process)).s);
    if (words_pid(process) != process->inner_pid)
        put_line(&grid, group, "namespace_pid", text_count(process->inner_pid).s);
    put_line(&grid, group, "uid", text_count(process->file.owner).s);
    put_line(&grid, group, "state", words_state(process));
    put_line(&grid, group, "created_unix_ns", date(header->created_unix_ns).s);
    put_line(&grid, group, "age_ns", text_duration(derive_age(segment, header->created_ns)).s);
    put_line(&grid, group, "heartbeat_age_ns", text_duration(derive_age(segment, header->heartbeat_ns)).s);
    put_line(&grid, group, "in_driver_ns", text_duration(derive_age(segment, header->in_driver_since_ns)).s);
    if (words_mark(process).s[0] != '\0' && process->liveness == LIVENESS_ALIVE) put_line(&grid, group, "stuck", "yes");
    put_line(&grid, group, "driver_version", text_cuda(header->driver_version).s);
    put_line(&grid, group, "runtime_only", header->runtime_only ? "yes" : "no");
    put_safe_line(&grid, group, "library_version", header->library_version, sizeof(header->library_version));
    put_line(&grid, group, "proc_address_lookups", text_count(header->proc_address_lookups).s);
    put_line(&grid, group, "symbols_hooked", text_count(header->symbols_hooked).s);
    put_line(&grid, group, "pid_namespace", header->pid_namespace ? text_count(header->pid_namespace).s : "-");
    put_line(&grid, group, "approximate", derive_is_approximate(segment) ? "yes" : "no");
    print_figures(&grid, options);
}

static const char *variable_help(const char *name) {
    static const struct {
        const char *name, *help;
    } variables[] = {
#define VARIABLE(NAME, field, kind, initial, low, high, range, help) {#NAME, help},
        POOLCUDA_VARIABLES(VARIABLE)
#undef VARIABLE
    };
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        if (strcmp(variables[i].name, name) == 0) return variables[i].help;
    return "";
}

static void print_configuration(const struct options *options, const struct segment *segment) {
    struct grid grid = {0};
    title("Configuration in force (set: by the user)");
    grid_column(&grid, "", GRID_LEFT);
    grid_elastic_column(&grid, "", GRID_RIGHT);
    grid_column(&grid, "", GRID_LEFT);
    grid_elastic_column(&grid, "", GRID_LEFT);
    for (size_t i = 0; i < segment->config_count; i++) {
        const struct poolcuda_config_entry *entry = &segment->config[i];
        char *name = text_safe(entry->name, sizeof(entry->name)),
             *value = text_safe(entry->value, sizeof(entry->value));
        grid_put(&grid, name);
        grid_put(&grid, value);
        grid_put(&grid, entry->from_environment ? "set" : "default");
        grid_put(&grid, variable_help(name));
        free(name);
        free(value);
    }
    print_figures(&grid, options);
}

static void print_pool_identity(const struct options *options, const struct poolcuda_pool *record) {
    const enum field_group group = FIELDS_POOL;
    const char *kind = words_kind(record);
    struct grid grid = {0};
    figure_columns(&grid);
    put_line(&grid, group, "kind", kind == NULL ? "unknown" : kind);
    put_line(&grid, group, "uuid", words_uuid(record).s);
    put_safe_line(&grid, group, "pci", record->pci, sizeof(record->pci));
    put_line(&grid, group, "device_total_bytes",
             text_bytes(record->device_total_bytes ? record->device_total_bytes : TEXT_UNKNOWN).s);
    put_line(&grid, group, record->kind == POOLCUDA_KIND_ASYNC ? "memory_pool" : "context",
             text_handle(record->context).s);
    put_line(&grid, group, "generation", text_count(record->generation).s);
    put_line(&grid, group, "limit_bytes", text_bytes(record->limited ? record->limit_bytes : TEXT_UNKNOWN).s);
    put_line(&grid, group, "max_split_bytes", text_bytes(record->max_split_bytes).s);
    print_figures(&grid, options);
}

static void print_pool_figures(const struct options *options, const struct segment_pool *pool) {
    struct poolcuda_pool figures;
    struct counters counters;
    struct measures measures;
    struct grid grid = {0};
    derive_figures(pool, &figures);
    derive_counters(pool, &counters);
    derive_measures(&figures, &counters, &measures);
    figure_columns(&grid);
#define PUT(name, unit, help) put_line(&grid, FIELDS_MEASURE, #name, VALUE_##unit(measures.name).s);
    DERIVE_MEASURES(PUT)
#undef PUT
    printf("\n  Derived\n");
    print_figures(&grid, options);
    figure_columns(&grid);
#define PUT(name, unit, kind, help) put_line(&grid, FIELDS_FIGURE, #name, VALUE_##unit(figures.name).s);
    POOLCUDA_POOL_FIGURES(PUT)
#undef PUT
    printf("\n  Figures\n");
    print_figures(&grid, options);
    figure_columns(&grid);
#define PUT(name, unit, kind, help) put_line(&grid, FIELDS_COUNTER, #name, VALUE_##unit(counters.name).s);
    POOLCUDA_CELL_COUNTERS(PUT)
#undef PUT
    printf("\n  Counters\n");
    print_figures(&grid, options);
}

static void print_size_classes(const struct options *options, const struct segment_pool *pool) {
    struct grid grid = {0};
    static const char *const columns[] = {"UP TO", "LIVE", "CACHED", "ALLOCS", "FREES", "HITS", "HIT RATE"};
    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) grid_column(&grid, columns[i], GRID_RIGHT);
    for (unsigned class = 0; class < POOLCUDA_SIZE_CLASSES; class ++) {
        struct class_sum sum;
        if (!derive_class(pool, class, &sum)) continue;
        grid_put(&grid, text_bytes(derive_class_bytes(class)).s);
        grid_put(&grid, text_bytes(sum.live_bytes).s);
        grid_put(&grid, text_bytes(sum.cached_bytes).s);
        grid_put(&grid, text_count(sum.allocs).s);
        grid_put(&grid, text_count(sum.frees).s);
        grid_put(&grid, text_count(sum.hits).s);
        grid_put(&grid, text_ratio(derive_ratio(sum.hits, sum.allocs)).s);
    }
    printf("\n  Size classes in use\n");
    print_table(&grid, options);
}

/* Ten marks are the largest count of the histogram. */
static void put_bar(struct grid *grid, const uint64_t *counts, unsigned bucket) {
    static const char marks[] = "##########";
    uint64_t largest = 1;
    for (unsigned i = 0; i < POOLCUDA_LATENCY_BUCKETS; i++)
        if (counts[i] > largest) largest = counts[i];
    const double part = derive_ratio(counts[bucket], largest) * (double)(sizeof(marks) - 1);
    char bar[sizeof(marks)];
    snprintf(bar, sizeof(bar), "%.*s", counts[bucket] == 0 ? 0 : part < 1 ? 1 : (int)part, marks);
    grid_put(grid, bar);
}

static void print_latency(const struct options *options, const struct poolcuda_pool *record) {
    struct grid grid = {0};
    grid_column(&grid, "FROM", GRID_RIGHT);
    grid_column(&grid, "TO", GRID_RIGHT);
    grid_column(&grid, "HITS", GRID_RIGHT);
    grid_column(&grid, "", GRID_LEFT);
    grid_column(&grid, "MISSES", GRID_RIGHT);
    grid_column(&grid, "", GRID_LEFT);
    for (unsigned bucket = 0; bucket < POOLCUDA_LATENCY_BUCKETS; bucket++) {
        if (record->hit_ns[bucket] == 0 && record->miss_ns[bucket] == 0) continue;
        grid_put(&grid, text_duration(derive_bucket_start(bucket)).s);
        grid_put(&grid, text_duration(derive_bucket_end(bucket)).s);
        grid_put(&grid, text_count(record->hit_ns[bucket]).s);
        put_bar(&grid, record->hit_ns, bucket);
        grid_put(&grid, text_count(record->miss_ns[bucket]).s);
        put_bar(&grid, record->miss_ns, bucket);
    }
    printf("\n  Latency (of hits one call in %u, of misses all)\n", POOLCUDA_LATENCY_SAMPLE);
    print_table(&grid, options);
}

static void print_streams(const struct options *options, const struct segment_pool *pool) {
    struct grid grid = {0};
    static const char *const columns[] = {"STREAM", "LIVE", "REQUESTED", "ALLOCS", "HITS", "FREES", "HIT RATE"};
    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
        grid_column(&grid, columns[i], i == 0 ? GRID_LEFT : GRID_RIGHT);
    struct stream_sum *sums;
    const size_t count = derive_streams(pool, &sums);
    for (size_t i = 0; i < count; i++) {
        const struct counters *all = &sums[i].counters;
        if (all->allocs == 0 && all->frees == 0) continue; /* one that only freed what others had allocated */
        grid_put(&grid, words_stream(sums[i].stream).s);
        grid_put(&grid, text_bytes(derive_difference(all->alloc_live_bytes, all->freed_live_bytes)).s);
        grid_put(&grid, text_bytes(derive_difference(all->alloc_requested_bytes, all->freed_requested_bytes)).s);
        grid_put(&grid, text_count(all->allocs).s);
        grid_put(&grid, text_count(all->hits).s);
        grid_put(&grid, text_count(all->frees).s);
        grid_put(&grid, text_ratio(derive_ratio(all->hits, all->allocs)).s);
    }
    free(sums);
    printf("\n  Streams, by where the blocks were allocated\n");
    print_table(&grid, options);
}

static void print_fixed(const struct options *options, const struct segment_pool *pool) {
    struct grid grid = {0};
    static const char *const columns[] = {"SIZE", "ASKED", "BLOCKS", "IN USE", "PEAK", "HITS", "MISSES"};
    if (pool->fixed_count == 0) return;
    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) grid_column(&grid, columns[i], GRID_RIGHT);
    for (size_t i = 0; i < pool->fixed_count; i++) {
#define PUT(name, unit, kind, help) grid_put(&grid, VALUE_##unit(pool->fixed[i].name).s);
        POOLCUDA_FIXED_FIGURES(PUT)
#undef PUT
    }
    printf("\n  Fixed sizes (POOL_FIXED)\n");
    print_table(&grid, options);
}

static void print_advice(const struct segment_pool *pool) {
    struct advice advice;
    if (!derive_advice(pool, &advice)) return;
    printf("\n  POOL_PREALLOC_MB=%s would have saved", text_count(advice.prealloc_bytes >> 20).s);
    printf(" %s driver calls", text_count(advice.driver_calls).s);
    printf(" and %s\n", text_duration(advice.driver_ns).s);
}

static void print_pool(const struct options *options, const struct segment_pool *pool) {
    const struct poolcuda_pool *record = &pool->record;
    const char *kind = words_kind(record);
    printf("\nPool %u: device %s, %s segments%s\n", pool->number,
           text_count(record->device < 0 ? TEXT_UNKNOWN : (uint64_t)record->device).s, kind == NULL ? "unknown" : kind,
           pool->approximate ? " (~ approximate: the process was busy)" : "");
    print_pool_identity(options, record);
    print_pool_figures(options, pool);
    print_advice(pool);
    print_fixed(options, pool);
    print_size_classes(options, pool);
    print_latency(options, record);
    print_streams(options, pool);
}

static void print_pass_through(const struct options *options, const struct poolcuda_header *header) {
    struct grid grid = {0};
    figure_columns(&grid);
#define PUT(name, help) \
    put_line(&grid, FIELDS_PASS_THROUGH, #name, text_count(header->pass_through[POOLCUDA_PASS_##name]).s);
    POOLCUDA_PASS_REASONS(PUT)
#undef PUT
    title(fields_title(FIELDS_PASS_THROUGH));
    print_figures(&grid, options);
}

static void put_event(struct grid *grid, const struct segment *segment, const struct poolcuda_event *event) {
    const char *type = words_event_type(event), *reason = words_oom_reason(event);
    grid_put(grid, text_count(event->sequence).s);
    grid_put(grid, text_duration(derive_age(segment, event->time_ns)).s);
    grid_put(grid, type == NULL ? "unknown" : type);
    grid_put(grid, event->pool == 0 ? "-" : text_count(event->pool).s);
    grid_put(grid, (event->address != 0 ? text_handle(event->address) : text_bytes(event->requested_bytes)).s);
    grid_put(grid, text_bytes(event->live_bytes).s);
    grid_put(grid, text_bytes(event->cached_bytes).s);
    grid_put(grid, text_bytes(event->largest_free_bytes).s);
    if (event->type == POOLCUDA_EVENT_fallback)
        grid_put(grid, text_count(event->reason).s);
    else
        grid_put(grid, reason == NULL ? "-" : reason);
    grid_put(grid, text_bytes(event->device_free_bytes).s);
    grid_put(grid, text_ratio(derive_ratio(event->fragmentation_ppm, 1000000)).s);
    grid_put(grid, text_count(event->device < 0 ? TEXT_UNKNOWN : (uint64_t)event->device).s);
}

/* The columns that matter least stand last: a narrow terminal loses those. */
static void print_events(const struct options *options, const struct segment *segment) {
    static const char *const columns[] = {"NO",     "AGO",     "EVENT",  "POOL",    "ASKED",   "LIVE",
                                          "CACHED", "LARGEST", "REASON", "DEVFREE", "EXTFRAG", "DEV"};
    struct grid grid = {0};
    title("Events, newest last");
    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
        grid_column(&grid, columns[i], i == 2 || i == 8 ? GRID_LEFT : GRID_RIGHT);
    for (size_t i = 0; i < segment->event_count; i++) put_event(&grid, segment, &segment->events[i]);
    print_table(&grid, options);
}

void sections_print(const struct options *options, const struct process *process) {
    const struct segment *segment = process->segment;
    print_process(options, process);
    print_configuration(options, segment);
    for (size_t i = 0; i < segment->pool_count; i++) print_pool(options, &segment->pools[i]);
    print_pass_through(options, &segment->header);
    print_events(options, segment);
}
