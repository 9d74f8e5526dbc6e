/* SPDX-License-Identifier: MIT
 *
 * What the pool says of this process; see own_figures.h.
 */
#include "own_figures.h"

#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "poolcuda/stats.h"

static const void *map_segment(size_t *size) {
    char pattern[64];
    glob_t found;
    struct stat status;
    const void *segment = MAP_FAILED;

    snprintf(pattern, sizeof pattern, "/dev/shm/" POOLCUDA_SHM_PREFIX "%u-%d-*", getuid(), (int)getpid());
    if (glob(pattern, 0, NULL, &found) == 0) {
        int file = open(found.gl_pathv[0], O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (file >= 0 && fstat(file, &status) == 0 && (size_t)status.st_size >= sizeof(struct poolcuda_header)) {
            *size = (size_t)status.st_size;
            segment = mmap(NULL, *size, PROT_READ, MAP_SHARED, file, 0);
        }
        if (file >= 0) close(file);
        globfree(&found);
    }
    return segment;
}

static bool section_fits(const struct poolcuda_section *section, size_t size) {
    return section->offset + (uint64_t)section->count * section->stride <= size;
}

static uint64_t get(const uint64_t *figure) {
    return __atomic_load_n(figure, __ATOMIC_RELAXED);
}

static void add_cells(struct own_figures *figures, const char *segment, const struct poolcuda_section *section) {
    for (uint32_t i = 0; i < section->count; i++) {
        const struct poolcuda_cell *record = (const void *)(segment + section->offset + (uint64_t)i * section->stride);
        if (record->pool == 0) continue;
        figures->waits += get(&record->free_waits);
        for (unsigned k = 0; k < POOLCUDA_SIZE_CLASSES; k++) {
            const struct poolcuda_size_class *class = &record->classes[k];
            const uint64_t misses = get(&class->misses), allocs = get(&class->allocs);
            figures->frees += get(&class->frees);
            figures->freed_live_bytes += get(&class->freed_bytes);
            figures->misses += misses;
            figures->hits += allocs - misses;
            figures->allocs += allocs;
        }
    }
}

static void add_pools(struct own_figures *figures, const char *segment, const struct poolcuda_section *section) {
    for (uint32_t i = 0; i < section->count; i++) {
        const struct poolcuda_pool *record = (const void *)(segment + section->offset + (uint64_t)i * section->stride);
#define ADD(name) figures->name += get(&record->name);
        OWN_FIGURES_POOLS(ADD)
#undef ADD
    }
}

bool own_figures_read(struct own_figures *figures) {
    size_t size = 0;
    const void *segment = map_segment(&size);
    if (segment == MAP_FAILED) return false;

    const struct poolcuda_header *header = segment;
    bool known = memcmp(header->magic, POOLCUDA_MAGIC, sizeof header->magic) == 0 &&
                 header->version == POOLCUDA_LAYOUT_VERSION && section_fits(&header->cells, size) &&
                 section_fits(&header->pools, size);
    if (known) {
        *figures = (struct own_figures){.segment_bytes = size};
        add_cells(figures, segment, &header->cells);
        add_pools(figures, segment, &header->pools);
    }
    munmap((void *)(uintptr_t)segment, size);
    return known;
}
