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

bool own_figures_read(struct own_figures *figures) {
    size_t size = 0;
    const void *segment = map_segment(&size);
    if (segment == MAP_FAILED) return false;

    const struct poolcuda_header *header = segment;
    const struct poolcuda_section *cells = &header->cells;
    bool known = memcmp(header->magic, POOLCUDA_MAGIC, sizeof header->magic) == 0 &&
                 header->version == POOLCUDA_LAYOUT_VERSION &&
                 cells->offset + (uint64_t)cells->count * cells->stride <= size;
    if (known) {
        *figures = (struct own_figures){.segment_bytes = size};
        for (uint32_t i = 0; i < cells->count; i++) {
            const struct poolcuda_cell *cell =
                (const void *)((const char *)segment + cells->offset + (uint64_t)i * cells->stride);
            if (cell->pool == 0) continue;
            figures->allocs += __atomic_load_n(&cell->allocs, __ATOMIC_RELAXED);
            figures->hits += __atomic_load_n(&cell->hits, __ATOMIC_RELAXED);
            figures->misses += __atomic_load_n(&cell->misses, __ATOMIC_RELAXED);
        }
    }
    munmap((void *)(uintptr_t)segment, size);
    return known;
}
