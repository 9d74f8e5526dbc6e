/* SPDX-License-Identifier: MIT
 *
 * The SIM_* variables: one table, read once when the library is loaded. SIM_HELP=1 prints it to stderr. Nothing is
 * simulated slowly or made to fail unless one of these asks for it.
 */
#ifndef SIM_SETTINGS_H
#define SIM_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

/* NUMBER(field, variable, default, least, most, help), TEXT(field, variable, help): a TEXT is NULL when not set. */
#define SETTINGS(NUMBER, TEXT)                                                                                       \
    NUMBER(devices, "SIM_DEVICES", 1, 0, 16, "number of devices")                                                    \
    NUMBER(memory_mb, "SIM_MEMORY_MB", 8192, 4, 1048576, "memory of each device, MiB")                               \
    NUMBER(alloc_us, "SIM_ALLOC_US", 0, 0, 10000000, "time that cuMemAlloc takes, microseconds")                     \
    NUMBER(free_us, "SIM_FREE_US", 0, 0, 10000000, "time that cuMemFree takes, microseconds")                        \
    NUMBER(alloc_waits, "SIM_ALLOC_WAITS", 0, 0, 1, "1: cuMemAlloc waits for the context's work")                    \
    NUMBER(free_waits, "SIM_FREE_WAITS", 1, 0, 1,                                                                    \
           "1: cuMemFree of memory from cuMemAlloc waits for the context's work")                                    \
    NUMBER(kernel_us, "SIM_KERNEL_US", 0, 0, 10000000, "time that every ordinary kernel takes, microseconds")        \
    NUMBER(queue_depth, "SIM_QUEUE_DEPTH", 1024, 1, 1048576,                                                         \
           "operations that a stream holds before a submission blocks")                                              \
    NUMBER(lazy_mb, "SIM_LAZY_MB", 0, 0, 1048576, "device memory that a context's first launch takes, MiB")          \
    NUMBER(oom_above_mb, "SIM_OOM_ABOVE_MB", 0, 0, 1048576,                                                          \
           "allocations of a device beyond this many MiB fail; 0: only when its memory is full")                     \
    NUMBER(pool_step_mb, "SIM_POOL_STEP_MB", 32, 2, 1024, "step in which a memory pool grows, MiB (even)")           \
    NUMBER(driver_version, "SIM_DRIVER_VERSION", 13000, 8000, 13000, "driver's version; what came later is missing") \
    NUMBER(races, "SIM_RACES", 0, 0, 2, "1: look for races from the start (sim.h); 2: print them besides")           \
    TEXT(missing, "SIM_MISSING", "names that the driver lacks: NAME,...")                                            \
    TEXT(fail, "SIM_FAIL", "calls that fail: NAME:N:CODE,...: call N (from 1; * for every) of NAME answers CODE")    \
    TEXT(latency, "SIM_LATENCY", "time that calls take: NAME:MICROSECONDS,...")                                      \
    TEXT(takes, "SIM_TAKES",                                                                                         \
         "device memory that every call of a name takes until the current context ends: NAME:MIB,...")               \
    TEXT(counts_file, "SIM_COUNTS_FILE", "file that gets the number of calls of every name at exit")

struct settings {
#define SETTINGS_NUMBER(field, variable, default_value, least, most, help) uint32_t field;
#define SETTINGS_TEXT(field, variable, help) const char *field;
    SETTINGS(SETTINGS_NUMBER, SETTINGS_TEXT)
#undef SETTINGS_NUMBER
#undef SETTINGS_TEXT
};

#pragma GCC visibility push(hidden)
extern struct settings settings; /* constant after settings_read */

void settings_read(void);

/* Walks a list "NAME:FIELD:FIELD,..." : the next entry's text into `entry`, false at the end. */
bool settings_next_entry(const char **list, char *entry, unsigned size);
#pragma GCC visibility pop

#endif
