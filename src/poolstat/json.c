/* SPDX-License-Identifier: MIT
 *
 * Builds the JSON documents from the same tables as everything else.
 */
#include "json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "derive.h"
#include "memory.h"
#include "text.h"
#include "words.h"

/* JSON's integers end at 2^63 − 1 here; what lies above is a mark for "unknown", or garbage. */
static json_t *integer(uint64_t value) {
    return value > INT64_MAX ? json_null() : json_integer((json_int_t)value);
}

static json_t *ratio(double value) {
    return isnan(value) ? json_null() : json_real(value);
}

static json_t *known(uint64_t value) {
    return value == 0 ? json_null() : integer(value);
}

static json_t *ordinal(int32_t value) {
    return value < 0 ? json_null() : json_integer(value);
}

static json_t *handle(uint64_t value) {
    return json_string(text_handle(value).s);
}

static json_t *word(const char *text) {
    return text == NULL ? json_null() : json_string(text);
}

json_t *json_safe_string(const char *bytes, size_t size) {
    char *safe = text_safe(bytes, size);
    json_t *string = json_string(safe);
    free(safe);
    return string;
}

static json_t *known_string(const char *bytes, size_t size) {
    return bytes[0] == '\0' ? json_null() : json_safe_string(bytes, size);
}

static void set(json_t *object, const char *name, json_t *value) {
    json_object_set_new(object, name, value);
}

json_t *json_document(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    json_t *document = json_object();
    set(document, "schema", json_string(POOLSTAT_SCHEMA));
    set(document, "time_unix_ns", integer((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec));
    return document;
}

json_t *json_error(enum code code, const char *message) {
    if (code == CODE_OK) return json_null();
    json_t *error = json_object();
    set(error, "code", json_integer(code));
    set(error, "message", json_safe_string(message, strlen(message)));
    return error;
}

json_t *json_error_document(enum code code, const char *message) {
    json_t *document = json_document();
    set(document, "error", json_error(code, message));
    return document;
}

json_t *json_problem(const struct process *process) {
    json_t *problem = json_object();
    set(problem, "pid", known(process->pid));
    set(problem, "path", json_safe_string(process->file.path, strlen(process->file.path)));
    char *message = memory_format("the segment %s", process->why);
    set(problem, "message", json_safe_string(message, strlen(message)));
    free(message);
    return problem;
}

static json_t *identity(const struct process *process) {
    const struct segment *segment = process->segment;
    const struct poolcuda_header *header = &segment->header;
    json_t *object = json_object();
    set(object, "pid", known(words_pid(process)));
    set(object, "namespace_pid", integer(process->inner_pid));
    set(object, "uid", integer(process->file.owner));
    set(object, "command", json_safe_string(header->command, sizeof(header->command)));
    set(object, "state", word(words_state(process)));
    set(object, "path", json_safe_string(process->file.path, strlen(process->file.path)));
    set(object, "pid_namespace", known(header->pid_namespace));
    set(object, "library_version", known_string(header->library_version, sizeof(header->library_version)));
    set(object, "driver_version", known(header->driver_version));
    set(object, "runtime_only", json_boolean(header->runtime_only != 0));
    set(object, "created_unix_ns", known(header->created_unix_ns));
    set(object, "age_ns", integer(derive_age(segment, header->created_ns)));
    set(object, "snapshot_age_ns", integer(derive_snapshot_age(segment)));
    set(object, "heartbeat_age_ns", integer(derive_age(segment, header->heartbeat_ns)));
    set(object, "in_driver_ns", integer(derive_age(segment, header->in_driver_since_ns)));
    set(object, "stuck", json_boolean(process->liveness == LIVENESS_ALIVE && derive_is_stuck(segment)));
    set(object, "proc_address_lookups", integer(header->proc_address_lookups));
    set(object, "symbols_hooked", integer(header->symbols_hooked));
    set(object, "approximate", json_boolean(derive_is_approximate(segment)));
    return object;
}

static void set_device(json_t *object, const struct poolcuda_pool *record) {
    struct text uuid = words_uuid(record);
    set(object, "device", ordinal(record->device));
    set(object, "uuid", uuid.s[0] == '-' ? json_null() : json_string(uuid.s));
    set(object, "pci", known_string(record->pci, sizeof(record->pci)));
    set(object, "device_total_bytes", known(record->device_total_bytes));
}

static void set_counters(json_t *object, const struct counters *counters) {
#define SET(name, unit, kind, help) set(object, #name, integer(counters->name));
    POOLCUDA_CELL_COUNTERS(SET)
#undef SET
}

static void set_figures(json_t *object, const struct poolcuda_pool *figures, const struct counters *counters) {
    struct measures measures;
    derive_measures(figures, counters, &measures);
#define SET_BYTES integer
#define SET_RATIO ratio
#define SET(name, unit, help) set(object, #name, SET_##unit(measures.name));
    DERIVE_MEASURES(SET)
#undef SET
#undef SET_BYTES
#undef SET_RATIO
#define SET(name, unit, kind, help) set(object, #name, integer(figures->name));
    POOLCUDA_POOL_FIGURES(SET)
#undef SET
    set_counters(object, counters);
}

json_t *json_listed_process(const struct process *process) {
    json_t *object = identity(process), *devices = json_array();
    struct device_sum *sums;
    const size_t count = derive_devices(process->segment, &sums);
    for (size_t i = 0; i < count; i++) {
        json_t *device = json_object();
        set_device(device, sums[i].identity);
        set(device, "pools", integer(sums[i].pools));
        set(device, "approximate", json_boolean(sums[i].approximate));
        set_figures(device, &sums[i].figures, &sums[i].counters);
        json_array_append_new(devices, device);
    }
    free(sums);
    set(object, "devices", devices);
    return object;
}

json_t *json_value(const struct value *value) {
    if (!value->known) return json_null();
    switch (value->unit) {
    case COLUMN_RATIO:
        return ratio(value->ratio);
    case COLUMN_FLAG:
        return json_boolean(value->number != 0);
    case COLUMN_TEXT:
        return json_string(value->text);
    case COLUMN_BYTES:
    case COLUMN_NS:
    case COLUMN_COUNT:
        break;
    }
    return integer(value->number);
}

static json_t *configuration(const struct segment *segment) {
    json_t *list = json_array();
    for (size_t i = 0; i < segment->config_count; i++) {
        const struct poolcuda_config_entry *entry = &segment->config[i];
        json_t *object = json_object();
        set(object, "name", json_safe_string(entry->name, sizeof(entry->name)));
        set(object, "value", json_safe_string(entry->value, sizeof(entry->value)));
        set(object, "from_environment", json_boolean(entry->from_environment != 0));
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *size_classes(const struct segment_pool *pool) {
    json_t *list = json_array();
    for (unsigned class = 0; class < POOLCUDA_SIZE_CLASSES; class ++) {
        struct class_sum sum;
        if (!derive_class(pool, class, &sum)) continue;
        json_t *object = json_object();
        set(object, "class_bytes", integer(derive_class_bytes(class)));
        set(object, "live_bytes", integer(sum.live_bytes));
        set(object, "cached_bytes", integer(sum.cached_bytes));
        set(object, "allocs", integer(sum.allocs));
        set(object, "frees", integer(sum.frees));
        set(object, "hits", integer(sum.hits));
        set(object, "hit_rate", ratio(derive_ratio(sum.hits, sum.allocs)));
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *latency(const struct poolcuda_pool *record) {
    json_t *list = json_array();
    for (unsigned bucket = 0; bucket < POOLCUDA_LATENCY_BUCKETS; bucket++) {
        if (record->hit_ns[bucket] == 0 && record->miss_ns[bucket] == 0) continue;
        json_t *object = json_object();
        set(object, "at_least_ns", integer(derive_bucket_start(bucket)));
        set(object, "below_ns", integer(derive_bucket_end(bucket)));
        set(object, "hit_samples", integer(record->hit_ns[bucket]));
        set(object, "misses", integer(record->miss_ns[bucket]));
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *streams(const struct segment_pool *pool) {
    json_t *list = json_array();
    struct stream_sum *sums;
    const size_t count = derive_streams(pool, &sums);
    for (size_t i = 0; i < count; i++) {
        const struct counters *counters = &sums[i].counters;
        json_t *object = json_object();
        set(object, "stream", json_string(words_stream(sums[i].stream).s));
        set(object, "stream_id", handle(sums[i].stream));
        set(object, "live_bytes", integer(derive_difference(counters->alloc_live_bytes, counters->freed_live_bytes)));
        set(object, "requested_bytes",
            integer(derive_difference(counters->alloc_requested_bytes, counters->freed_requested_bytes)));
        set(object, "hit_rate", ratio(derive_ratio(counters->hits, counters->allocs)));
        set_counters(object, counters);
        json_array_append_new(list, object);
    }
    free(sums);
    return list;
}

static json_t *fixed(const struct segment_pool *pool) {
    json_t *list = json_array();
    for (size_t i = 0; i < pool->fixed_count; i++) {
        json_t *object = json_object();
#define SET(name, unit, kind, help) set(object, #name, integer(pool->fixed[i].name));
        POOLCUDA_FIXED_FIGURES(SET)
#undef SET
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *advice(const struct segment_pool *pool) {
    struct advice advice;
    if (!derive_advice(pool, &advice)) return json_null();
    json_t *object = json_object();
    set(object, "prealloc_bytes", integer(advice.prealloc_bytes));
    set(object, "driver_calls", integer(advice.driver_calls));
    set(object, "driver_ns", integer(advice.driver_ns));
    return object;
}

static json_t *pool(const struct segment_pool *pool) {
    const struct poolcuda_pool *record = &pool->record;
    struct poolcuda_pool figures;
    struct counters counters;
    derive_figures(pool, &figures);
    derive_counters(pool, &counters);
    json_t *object = json_object();
    set(object, "pool", integer(pool->number));
    set_device(object, record);
    set(object, "kind", word(words_kind(record)));
    set(object, "context", record->kind == POOLCUDA_KIND_PLAIN ? handle(record->context) : json_null());
    set(object, "memory_pool", record->kind == POOLCUDA_KIND_ASYNC ? handle(record->context) : json_null());
    set(object, "generation", integer(record->generation));
    set(object, "limit_bytes", record->limited ? integer(record->limit_bytes) : json_null());
    set(object, "max_split_bytes", integer(record->max_split_bytes));
    set(object, "approximate", json_boolean(pool->approximate));
    set_figures(object, &figures, &counters);
    set(object, "size_classes", size_classes(pool));
    set(object, "latency", latency(record));
    set(object, "streams", streams(pool));
    set(object, "fixed", fixed(pool));
    set(object, "advice", advice(pool));
    return object;
}

static json_t *pass_through(const struct poolcuda_header *header) {
    json_t *object = json_object();
#define SET(name, help) set(object, #name, integer(header->pass_through[POOLCUDA_PASS_##name]));
    POOLCUDA_PASS_REASONS(SET)
#undef SET
    return object;
}

static json_t *event(const struct segment *segment, const struct poolcuda_event *event) {
    json_t *object = json_object();
    set(object, "sequence", integer(event->sequence));
    set(object, "age_ns", integer(derive_age(segment, event->time_ns)));
    set(object, "type", word(words_event_type(event)));
    set(object, "device", ordinal(event->device));
    set(object, "pool", known(event->pool));
    set(object, "reason", word(words_oom_reason(event)));
    set(object, "driver_code", event->type == POOLCUDA_EVENT_fallback ? integer(event->reason) : json_null());
    set(object, "requested_bytes", event->address != 0 ? json_null() : integer(event->requested_bytes));
    set(object, "address", known(event->address));
    set(object, "live_bytes", integer(event->live_bytes));
    set(object, "cached_bytes", integer(event->cached_bytes));
    set(object, "largest_free_bytes", integer(event->largest_free_bytes));
    set(object, "device_free_bytes", integer(event->device_free_bytes));
    set(object, "external_fragmentation", ratio(derive_ratio(event->fragmentation_ppm, 1000000)));
    return object;
}

json_t *json_whole_process(const struct process *process) {
    const struct segment *segment = process->segment;
    json_t *object = identity(process), *pools = json_array(), *events = json_array();
    for (size_t i = 0; i < segment->pool_count; i++) json_array_append_new(pools, pool(&segment->pools[i]));
    for (size_t i = 0; i < segment->event_count; i++)
        json_array_append_new(events, event(segment, &segment->events[i]));
    set(object, "configuration", configuration(segment));
    set(object, "pools", pools);
    set(object, "pass_through", pass_through(&segment->header));
    set(object, "events", events);
    return object;
}

static bool one_line;

void json_one_line(void) {
    one_line = true;
}

/* jansson gives a token at a time. */
static int print_part(const char *text, size_t size, void *unused) {
    (void)unused;
    return fwrite_unlocked(text, 1, size, stdout) == size ? 0 : -1;
}

void json_print(json_t *document) {
    json_dump_callback(document, print_part, NULL, (one_line ? JSON_COMPACT : JSON_INDENT(2)) | JSON_REAL_PRECISION(6));
    fputc('\n', stdout);
    json_decref(document);
}
