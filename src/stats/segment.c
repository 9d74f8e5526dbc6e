/* SPDX-License-Identifier: MIT
 *
 * Describes the process in its segment, and makes the shared-memory file.
 */
#include "stats/segment.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "config/config.h"
#include "config/log.h"
#include "stats/identity.h"
#include "stats/shm.h"

uint64_t segment_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t unix_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- description ---- */

#define SECTION(member, records)                                                \
    {                                                                           \
        .offset = offsetof(struct segment_storage, member), .count = (records), \
        .stride = sizeof(((struct segment_storage *)NULL)->member[0])           \
    }

static void describe_config(struct segment_storage *storage) {
    const struct config *config = config_get();
    const size_t count = config_variable_count();
    for (size_t i = 0; i < count && i < POOLCUDA_MAX_CONFIG; i++) {
        struct poolcuda_config_entry *entry = &storage->config[i];
        snprintf(entry->name, sizeof entry->name, "%s", config_variable_at(i)->name);
        config_value_text(config, i, entry->value, sizeof entry->value);
        entry->from_environment = config_from_environment(config, i);
    }
    storage->header.config = (struct poolcuda_section)SECTION(config, (uint32_t)count);
}

void segment_describe(struct segment_storage *storage) {
    struct poolcuda_header *header = &storage->header;
    header->version = POOLCUDA_LAYOUT_VERSION;
    header->header_bytes = sizeof *header;
    header->total_bytes = sizeof *storage;
    header->pid = (uint32_t)getpid();
    header->uid = (uint32_t)geteuid(); /* the file's owner */
    header->start_ticks = identity_own_start_ticks();
    header->pid_namespace = identity_pid_namespace();
    header->created_ns = segment_clock_ns();
    header->created_unix_ns = unix_clock_ns();
    snprintf(header->library_version, sizeof header->library_version, "%s", POOLCUDA_VERSION);
    identity_command(header->command, sizeof header->command);
    describe_config(storage);
    header->pools = (struct poolcuda_section)SECTION(pools, POOLCUDA_MAX_POOLS);
    header->cells = (struct poolcuda_section)SECTION(cells, POOLCUDA_MAX_CELLS);
    header->events = (struct poolcuda_section)SECTION(events, POOLCUDA_MAX_EVENTS);
    header->fixed = (struct poolcuda_section)SECTION(fixed, POOLCUDA_MAX_FIXED);
    header->map = (struct poolcuda_section)SECTION(map, POOLCUDA_MAX_MAP_ROWS);
    /* Last: a process that is killed before leaves a file that is known to be unfinished. */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(header->magic, POOLCUDA_MAGIC, sizeof header->magic);
}

/* ---- the file ---- */

static struct segment_storage *no_figures(const char *step, int error) {
    const char *reason = strerrordesc_np(error);
    log_line(LOG_WARNING, "no figures are published: cannot %s the segment: %s", step,
             reason == NULL ? "unknown error" : reason);
    return NULL;
}

struct segment_storage *segment_create(const struct poolcuda_header *identity, char name[SEGMENT_NAME_BYTES]) {
    struct shm_head head;
    const char *step;
    memcpy(&head, identity, sizeof head);
    const int fd = shm_create(SHM_SEGMENT, &head, sizeof(struct segment_storage), name, &step);
    if (fd < 0) return no_figures(step, errno);
    void *memory = mmap(NULL, sizeof(struct segment_storage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    const int error = errno;
    close(fd);
    if (memory != MAP_FAILED) return memory;
    shm_unlink(name);
    return no_figures("map", error);
}

void segment_unlink(const char *name) {
    shm_unlink(name);
}
