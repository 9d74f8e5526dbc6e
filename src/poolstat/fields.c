/* SPDX-License-Identifier: MIT
 *
 * The tables of the glossary.
 */
#include "fields.h"

#include <string.h>

#include "derive.h"
#include "poolcuda/stats.h"

#define UNIT_BYTES "bytes"
#define UNIT_COUNT "count"
#define UNIT_NS "ns"
#define UNIT_RATIO "0 to 1"
#define FIGURE(name, unit, kind, help) {#name, UNIT_##unit, help},
#define STATE(name, unit, kind, help) {#name "_bytes", UNIT_##unit, help},
#define MEASURE(name, unit, help) {#name, UNIT_##unit, help},
#define NAMED(name, help) {#name, UNIT_COUNT, help},
#define TYPE(name, help) {#name, "word", help},

static const struct field process_fields[] = {
    {"pid", "number", "process id as seen from here; null when it cannot be seen"},
    {"namespace_pid", "number", "process id in its own pid namespace, as inside a container"},
    {"uid", "number", "user who owns the figures"},
    {"time", "time", "of tables and CSV: when its figures were copied; in JSON time_unix_ns and snapshot_age_ns"},
    {"command", "text", "base name of the program; what cannot be printed is escaped as \\xNN or \\u{N}"},
    {"state", "word",
     "running; ended: the figures are the last ones; unseen: in a pid namespace that cannot be seen from here"},
    {"path", "text", "file of the figures"},
    {"pid_namespace", "number", "inode of its pid namespace"},
    {"library_version", "text", "release of libpoolcuda.so in it"},
    {"driver_version", "version", "CUDA version of the driver, as cuDriverGetVersion gives it (13000 is 13.0)"},
    {"runtime_only", "yes or no", "no driver lies beneath its CUDA runtime"},
    {"created_unix_ns", "ns", "time of its first CUDA call, since 1970"},
    {"age_ns", "ns", "time since its first CUDA call"},
    {"heartbeat_age_ns", "ns", "time since the library last noted that it works (slow calls, and one in 64)"},
    {"snapshot_age_ns", "ns", "how old this copy of the figures is, in which all of a pool are of one moment"},
    {"in_driver_ns", "ns", "how long the pool's present driver call has lasted; null when there is none"},
    {"stuck", "yes or no", "its pool has been inside one driver call for over 10 s (in driver, in tables)"},
    {"proc_address_lookups", "count", "cuGetProcAddress calls seen"},
    {"symbols_hooked", "count", "look-ups answered with a function of the pool"},
    {"approximate", "yes or no", "some figures are not of one moment: see the pools'"},
};

static const struct field configuration_fields[] = {
    {"name", "text", "variable (see: poolstat help config)"},
    {"value", "text", "value in force"},
    {"from_environment", "yes or no", "set by the user; otherwise it is the default"},
};

static const struct field pool_fields[] = {
    {"pool", "number", "number of the pool in its process, as events name it"},
    {"device", "number", "ordinal of the GPU in the process; null when unknown"},
    {"kind", "word", "of its segments: plain (cudaMalloc) or async (cudaMallocAsync)"},
    {"context", "handle", "CUDA context; null for async segments, which belong to none"},
    {"memory_pool", "handle", "the driver's memory pool that async segments come from; null for plain ones"},
    {"generation", "number", "which life of that handle, unique in the process"},
    {"uuid", "text", "of the GPU"},
    {"pci", "text", "address of the GPU"},
    {"device_total_bytes", "bytes", "memory of the GPU"},
    {"limit_bytes", "bytes",
     "most that may be reserved (POOL_LIMIT_MB, or what poolstat ctl has set); null without a limit"},
    {"max_split_bytes", "bytes", "larger blocks are never split (POOL_MAX_SPLIT_MB); null when unlimited"},
    {"approximate", "yes or no",
     "the process was so busy that no copy of one moment was had in a millisecond (~ in tables): the figures are some "
     "microseconds apart and may not add up, what was allocated and freed meanwhile may count as live, and the peaks "
     "are as they were last noted"},
    {"pools", "count", "of a device: pools that are summed here; peaks are then upper bounds"},
};

static const struct field figure_fields[] = {POOLCUDA_POOL_FIGURES(FIGURE)};
static const struct field counter_fields[] = {POOLCUDA_CELL_COUNTERS(FIGURE)};
static const struct field measure_fields[] = {DERIVE_MEASURES(MEASURE)};

static const struct field size_class_fields[] = {
    {"class_bytes", "bytes", "largest size of the class; null for the last, which has no bound"},
    {"live_bytes", "bytes", "held by the program in blocks of this class"},
    {"cached_bytes", "bytes", "free blocks whose size is in the class"},
    {"allocs", "count", "blocks handed out"},
    {"frees", "count", "blocks freed"},
    {"hits", "count", "served without a driver allocation"},
    {"hit_rate", "0 to 1", "hits / allocs"},
};

static const struct field latency_fields[] = {
    {"at_least_ns", "ns", "lower bound of the bucket"},
    {"below_ns", "ns", "upper bound of the bucket; null for the last"},
    {"hit_samples", "count", "hits that took so long; one call in 64 is timed"},
    {"misses", "count", "misses that took so long; every one is timed"},
};

static const struct field stream_fields[] = {
    {"stream", "text",
     "a number: a stream that was created, in that order; legacy, thread N: default streams; driver N: one whose "
     "creation was not seen, by cuStreamGetId; none: of no stream, or of those beyond the table"},
    {"stream_id", "handle", "of the stream, unique in the process; 0x0: none"},
    {"live_bytes", "bytes", "rounded size of the blocks that were allocated on it and are the program's"},
    {"requested_bytes", "bytes", "what the program asked for in these blocks"},
    {"hit_rate", "0 to 1", "hits / allocs"},
};

static const struct field fixed_fields[] = {POOLCUDA_FIXED_FIGURES(FIGURE)};

static const struct field map_fields[] = {
    {"address", "handle", "where the segment begins"},
    {"size_bytes", "bytes", "its size"},
    {"use", "word", "ordinary, preallocated (POOL_PREALLOC_MB) or fixed (POOL_FIXED)"},
    POOLCUDA_MAP_STATES(STATE){"unused_bytes", "bytes", "preallocated, and in use for nothing"},
    {"largest_free_bytes", "bytes", "largest block that is idle or ordered"},
    {"live_blocks", "count", "live blocks that begin in it"},
    {"free_blocks", "count", "free blocks that begin in it, also those that wait"},
    {"age_ns", "ns",
     "since the library last looked at its blocks: it does so little by little while the program works"},
    {"letters", "text",
     "its cells, each a 64th of it: the letter of what it mostly is, a small one where not all of it is"},
    {"parts", "object", "of each cell, how much is in a state, in cell_parts; an empty list: nothing of it"},
    {"cell_class_bytes", "list", "of each cell, the size class of the block that most of it belongs to"},
    {"cell_blocks", "list", "of each cell, the blocks that begin in it; 255: so many or more"},
    {"live_now_bytes", "bytes", "of a pool: live by its figures, which are as of now"},
    {"cached_now_bytes", "bytes", "likewise cached"},
    {"outdated", "yes or no",
     "of a pool: the picture has more or less that is live than there is now, and is over 1 s old"},
    {"left_out_segments", "count",
     "of a pool: segments without a row, as there are more than rows, or not yet looked at"},
    {"left_out_bytes", "bytes", "their size"},
};

static const struct field pass_through_fields[] = {POOLCUDA_PASS_REASONS(NAMED)};

static const struct field event_fields[] = {
    {"sequence", "number", "number of the event, from 1"},
    {"age_ns", "ns", "how long ago"},
    {"type", "word", "what happened, see the next table"},
    {"device", "number", "ordinal of the GPU in the process"},
    {"pool", "number", "pool that it concerns"},
    {"reason", "word", "of an allocation that failed: driver (it had no more) or limit (POOL_LIMIT_MB)"},
    {"driver_code", "number", "of a fallback: the driver's answer"},
    {"requested_bytes", "bytes", "what was asked: block (oom), segment (growth, release); given back (trim)"},
    {"address", "number", "of a refused free (bad_free): what was to be freed"},
    {"live_bytes", "bytes", "live at that time"},
    {"cached_bytes", "bytes", "cached at that time"},
    {"largest_free_bytes", "bytes", "largest free block at that time"},
    {"device_free_bytes", "bytes", "free memory of the GPU; null when it was not asked"},
    {"external_fragmentation", "0 to 1", "1 - largest free block / idle and ordered bytes"},
};

static const struct field event_type_fields[] = {POOLCUDA_EVENT_TYPES(TYPE)};

static const struct field doctor_fields[] = {
    {"subject", "word", "what was looked at: process, command or machine"},
    {"pid", "number", "of a process, as seen from here"},
    {"command", "text", "of a process as it calls itself, or the command as it was given"},
    {"verdict", "word",
     "of a process: pooled, not_pooled, not_yet (it made no call that the pool could serve), unknown; else ready or "
     "not_ready"},
    {"findings", "list", "what was found"},
    {"id", "word", "of a finding, for scripts: it does not change"},
    {"severity", "word", "ok, note, or problem (then the exit code is 1)"},
    {"what", "text", "what was found, in a sentence"},
    {"advice", "text", "what to do; null when nothing need be done"},
};

static const struct field document_fields[] = {
    {"schema", "text", "form of the document; another number means another form"},
    {"time_unix_ns", "ns", "when it was made, since 1970"},
    {"processes", "list", "processes that run on the pool, each with its devices"},
    {"process", "object", "of show: the process"},
    {"doctor", "object", "of doctor: its diagnosis"},
    {"devices", "list", "of a process in the list: sums over its pools, by device"},
    {"configuration", "list", "variables in force"},
    {"pools", "list", "of show: the pools of the process"},
    {"size_classes", "list", "of a pool: classes that were used"},
    {"latency", "list", "of a pool: buckets that were used"},
    {"streams", "list", "of a pool: counters by stream"},
    {"fixed", "list", "of a pool: its fixed-size pools (POOL_FIXED)"},
    {"advice", "object", "of a pool: null, or what POOL_PREALLOC_MB of prealloc_bytes would have saved by now"},
    {"driver_calls", "count", "of an advice: segments that would not have been taken while the program ran"},
    {"pass_through", "object", "calls that went to the driver untouched, by reason"},
    {"events", "list", "last events, newest last"},
    {"condition", "text", "of check: what was asked"},
    {"holds", "yes or no", "of check, and of each process there; null when it is not known"},
    {"checks", "list", "of check: the processes that were looked at, each as the sum of its pools"},
    {"values", "object", "of a check: the figures that the condition names"},
    {"not_shown", "object", "processes that run on the pool and are not in the list"},
    {"denied", "count", "not shown: they belong to other users"},
    {"unseen", "count", "not shown: in pid namespaces that cannot be seen from here"},
    {"problems", "list", "segments that could not be read"},
    {"map", "object", "of map: the process, and the segments of its pools"},
    {"segments", "list", "of a pool in the map: those with a row"},
    {"cell_parts", "number", "of the map: how many parts a cell has"},
    {"error", "object", "null, or why there is no full answer: code (the exit code) and message"},
    {"control", "object", "of ctl: what the process has done"},
    {"request", "word", "of ctl: trim, limit or reset-peak"},
    {"value_bytes", "bytes", "of ctl: what trim kept, or the limit that was asked for; null where there is none"},
    {"given_back_bytes", "bytes", "of ctl: given back to the driver"},
    {"limit_bytes_before", "bytes", "of ctl: the limit that was in force; null without one"},
    {"over_limit_bytes", "bytes", "of ctl: in use and so still held above the new limit"},
    {"code", "number", "exit code"},
    {"message", "text", "what is wrong, and what to do"},
};

#define GROUP(title, fields) \
    { title, fields, sizeof(fields) / sizeof((fields)[0]) }
static const struct {
    const char *title;
    const struct field *fields;
    size_t count;
} groups[FIELDS_GROUPS] = {
    [FIELDS_PROCESS] = GROUP("Process", process_fields),
    [FIELDS_CONFIGURATION] = GROUP("Configuration", configuration_fields),
    [FIELDS_POOL] = GROUP("Pool", pool_fields),
    [FIELDS_FIGURE] = GROUP("Figures of a pool", figure_fields),
    [FIELDS_COUNTER] = GROUP("Counters of a pool, and of a stream in it", counter_fields),
    [FIELDS_MEASURE] = GROUP("Derived measures of a pool", measure_fields),
    [FIELDS_SIZE_CLASS] = GROUP("Size classes of a pool", size_class_fields),
    [FIELDS_LATENCY] = GROUP("Latency histogram of a pool", latency_fields),
    [FIELDS_STREAM] = GROUP("Streams of a pool, beside the counters", stream_fields),
    [FIELDS_FIXED] = GROUP("Fixed-size pools of a pool", fixed_fields),
    [FIELDS_MAP] = GROUP("Segments of the block map (poolstat map)", map_fields),
    [FIELDS_PASS_THROUGH] = GROUP("Calls that went to the driver untouched, by reason", pass_through_fields),
    [FIELDS_EVENT] = GROUP("Events", event_fields),
    [FIELDS_EVENT_TYPE] = GROUP("Types of events", event_type_fields),
    [FIELDS_DOCTOR] = GROUP("Diagnosis (doctor)", doctor_fields),
    [FIELDS_DOCUMENT] = GROUP("Documents (--json)", document_fields),
};

const char *fields_title(enum field_group group) {
    return groups[group].title;
}

const struct field *fields_of(enum field_group group, size_t *count) {
    *count = groups[group].count;
    return groups[group].fields;
}

const char *fields_help(enum field_group group, const char *name) {
    for (size_t i = 0; i < groups[group].count; i++)
        if (strcmp(groups[group].fields[i].name, name) == 0) return groups[group].fields[i].help;
    return "";
}
