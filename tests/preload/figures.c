/* SPDX-License-Identifier: MIT
 *
 * Reads a process's figures from outside: figures PID prints `name value` lines, sums over all pools and cells. Exit
 * status 1 when the process has no segment.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cell_sums.h"
#include "poolcuda/stats.h"

static const void *at(const struct poolcuda_header *header, struct poolcuda_section section, uint32_t i) {
    return (const char *)header + section.offset + (size_t)i * section.stride;
}

/* The record, completed by its cells. */
static struct poolcuda_pool pool_at(const struct poolcuda_header *header, uint32_t i) {
    struct poolcuda_pool pool = *(const struct poolcuda_pool *)at(header, header->pools, i);
    struct cell_sums sums = {0};
    for (uint32_t k = 0; k < header->cells.count; k++) {
        const struct poolcuda_cell *cell = at(header, header->cells, k);
        if (cell->pool == i + 1) cell_sums_add(&sums, cell);
    }
    cell_sums_complete(&pool, &sums);
    return pool;
}

static unsigned long long start_ticks(const char *pid) {
    char path[64], text[1024] = "";
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    const size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    const char *field = strrchr(text, ')');
    for (int i = 2; field && i < 22; i++) field = strchr(field + 1, ' ');
    return field ? strtoull(field, NULL, 10) : 0;
}

int main(int argc, char **argv) {
    char path[128];
    struct stat status;
    if (argc != 2) return 2;
    snprintf(path, sizeof path, "/dev/shm/%s%u-%s-%llu", POOLCUDA_SHM_PREFIX, (unsigned)getuid(), argv[1],
             start_ticks(argv[1]));
    const int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &status) != 0) return 1;
    const struct poolcuda_header *header = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (header == MAP_FAILED) return 2;

    printf("state %" PRIu32 "\nruntime_only %" PRIu32 "\ndriver_version %" PRIu32 "\n", header->state,
           header->runtime_only, header->driver_version);
    printf("symbols_hooked %" PRIu64 "\nproc_address_lookups %" PRIu64 "\n", header->symbols_hooked,
           header->proc_address_lookups);
#define PRINT_REASON(name, help) printf("pass_" #name " %" PRIu64 "\n", header->pass_through[POOLCUDA_PASS_##name]);
    POOLCUDA_PASS_REASONS(PRINT_REASON)

    unsigned events[POOLCUDA_EVENT_COUNT] = {0}, of_pool_1 = 0;
    for (uint32_t i = 0; i < header->events.count; i++) {
        const struct poolcuda_event *event = at(header, header->events, i);
        if (event->sequence == 0 || event->type >= POOLCUDA_EVENT_COUNT) continue;
        events[event->type]++;
        of_pool_1 += event->pool == 1;
    }
    printf("events_of_pool_1 %u\n", of_pool_1);
#define PRINT_EVENT(name, help) printf("event_" #name " %u\n", events[POOLCUDA_EVENT_##name]);
    POOLCUDA_EVENT_TYPES(PRINT_EVENT)

    struct poolcuda_pool all = {0};
    struct cell_sums counters = {0};
    unsigned pools = 0;
    uint64_t limit = 0;
    for (uint32_t i = 0; i < header->cells.count; i++) cell_sums_add(&counters, at(header, header->cells, i));
    for (uint32_t i = 0; i < header->pools.count; i++) {
        const struct poolcuda_pool pool = pool_at(header, i);
        pools += pool.state == POOLCUDA_POOL_OPEN;
        if (pool.limit_bytes > limit) limit = pool.limit_bytes;
#define ADD_POOL(name, unit, kind, help) all.name += pool.name;
        POOLCUDA_POOL_FIGURES(ADD_POOL)
    }
    printf("pools %u\nlimit_bytes %" PRIu64 "\n", pools, limit);
#define PRINT_POOL(name, unit, kind, help) printf(#name " %" PRIu64 "\n", all.name);
    POOLCUDA_POOL_FIGURES(PRINT_POOL)
#define PRINT_CELL(name, unit, kind, help) printf(#name " %" PRIu64 "\n", counters.name);
    POOLCUDA_CELL_COUNTERS(PRINT_CELL)
#define PRINT_FIXED(name, unit, kind, help)                                    \
    {                                                                          \
        uint64_t sum = 0;                                                      \
        for (uint32_t i = 0; i < header->fixed.count; i++) {                   \
            const struct poolcuda_fixed *fixed = at(header, header->fixed, i); \
            if (fixed->pool) sum += fixed->name;                               \
        }                                                                      \
        printf("fixed_" #name " %" PRIu64 "\n", sum);                          \
    }
    POOLCUDA_FIXED_FIGURES(PRINT_FIXED)
    return 0;
}
