/* SPDX-License-Identifier: MIT
 *
 * Device memory: a sparse file per device, mapped twice: once without any right, at the addresses that programs get,
 * and once for the simulator itself. It is handed out in chunks of 2 MiB, first fit; a chunk that was written to and is
 * given back is punched out of the file, so that the simulation takes no more host memory than the program has live.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bits.h"
#include "driver.h"

/* Addresses per byte of memory, so that fragmentation of the address range does not end a program early. */
enum { ADDRESS_FACTOR = 4 };

CUresult backing_start(struct device *device) {
    const size_t chunks = (device->total_bytes >> CHUNK_SHIFT) * ADDRESS_FACTOR;
    const size_t bytes = chunks << CHUNK_SHIFT;
    device->chunk_count = chunks;
    device->chunk_taken = calloc(BITS_WORDS(chunks), sizeof(uint64_t));
    device->touched = calloc(chunks, sizeof(*device->touched));
    device->memory_file = memfd_create("simulated-gpu", MFD_CLOEXEC);
    device->memory_file_identity = shares_file_identity(device->memory_file);
    if (device->chunk_taken == NULL || device->touched == NULL || device->memory_file < 0 ||
        ftruncate(device->memory_file, (off_t)bytes) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    char *const range = mmap(NULL, bytes + CHUNK_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    device->shadow = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, device->memory_file, 0);
    if (range == MAP_FAILED || device->shadow == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    device->base = ((uint64_t)(uintptr_t)range + CHUNK_BYTES - 1) & ~(uint64_t)(CHUNK_BYTES - 1);
    madvise(device->shadow, bytes, MADV_DONTDUMP);
    return CUDA_SUCCESS;
}

static uint64_t capacity(const struct device *device) {
    const size_t limit = (size_t)settings.oom_above_mb << 20;
    return limit != 0 && limit < device->total_bytes ? limit : device->total_bytes;
}

bool backing_charge(struct device *device, size_t bytes) {
    const size_t used = atomic_load_explicit(&device->used_bytes, memory_order_relaxed);
    if (bytes > capacity(device) || used > capacity(device) - bytes) return false;
    atomic_store_explicit(&device->used_bytes, used + bytes, memory_order_relaxed);
    return true;
}

void backing_discharge(struct device *device, size_t bytes) {
    atomic_fetch_sub_explicit(&device->used_bytes, bytes, memory_order_relaxed);
}

uint64_t backing_take(struct device *device, size_t chunks, bool charged) {
    if (chunks > device->chunk_count) return 0;
    if (charged && !backing_charge(device, chunks << CHUNK_SHIFT)) return 0;
    device->lowest_free = bits_next(device->chunk_taken, device->lowest_free, device->chunk_count, false);
    const size_t first = bits_find_run(device->chunk_taken, device->lowest_free, device->chunk_count, chunks);
    if (first == device->chunk_count) {
        if (charged) backing_discharge(device, chunks << CHUNK_SHIFT);
        return 0;
    }
    bits_set_run(device->chunk_taken, first, chunks, true);
    return device->base + ((uint64_t)first << CHUNK_SHIFT);
}

/* Neighbours that were written to are punched out together. */
static void punch_out(struct device *device, size_t first, size_t chunks) {
    size_t chunk = first;
    while (chunk < first + chunks) {
        size_t end = chunk;
        while (end < first + chunks && atomic_exchange_explicit(&device->touched[end], 0, memory_order_relaxed) != 0)
            end++;
        if (end > chunk) madvise(device->shadow + (chunk << CHUNK_SHIFT), (end - chunk) << CHUNK_SHIFT, MADV_REMOVE);
        chunk = end + 1;
    }
}

void backing_give(struct device *device, uint64_t address, size_t chunks, bool charged) {
    const size_t first = (address - device->base) >> CHUNK_SHIFT;
    punch_out(device, first, chunks);
    bits_set_run(device->chunk_taken, first, chunks, false);
    if (first < device->lowest_free) device->lowest_free = first;
    if (charged) backing_discharge(device, chunks << CHUNK_SHIFT);
}

/* What the simulator sees at the chunks; false, with nothing changed, when the process can have no more mappings. */
static bool show(const struct device *device, uint64_t address, size_t chunks, int file, uint64_t offset) {
    char *const place = device->shadow + (address - device->base);
    const size_t bytes = chunks << CHUNK_SHIFT;
    const int flags = MAP_SHARED | MAP_NORESERVE | MAP_FIXED;
    if (mmap(place, bytes, PROT_READ | PROT_WRITE, flags, file, (off_t)offset) == MAP_FAILED) return false;
    madvise(place, bytes, MADV_DONTDUMP);
    return true;
}

uint64_t backing_map(struct device *device, int file, uint64_t offset, size_t chunks) {
    const uint64_t address = backing_take(device, chunks, false);
    if (address == 0 || show(device, address, chunks, file, offset)) return address;
    backing_give(device, address, chunks, false);
    return 0;
}

void backing_unmap(struct device *device, uint64_t address, size_t chunks) {
    /* As long as the other's memory is to be seen there, giving the chunks back would clear that. */
    if (shares_file_is(device->memory_file, device->memory_file_identity) &&
        show(device, address, chunks, device->memory_file, address - device->base))
        backing_give(device, address, chunks, false);
}

struct device *backing_device(uint64_t address) {
    for (int i = 0; i < device_count; i++) {
        if (address - devices[i].base < (uint64_t)devices[i].chunk_count << CHUNK_SHIFT) return &devices[i];
    }
    return NULL;
}

char *backing_pointer(uint64_t address) {
    const struct device *const device = backing_device(address);
    return device != NULL ? device->shadow + (address - device->base) : (char *)(uintptr_t)address;
}

void backing_touch(uint64_t address, size_t bytes) {
    struct device *const device = backing_device(address);
    if (device == NULL || bytes == 0) return;
    const size_t last = (address + bytes - 1 - device->base) >> CHUNK_SHIFT;
    for (size_t chunk = (address - device->base) >> CHUNK_SHIFT; chunk <= last; chunk++)
        atomic_store_explicit(&device->touched[chunk], 1, memory_order_relaxed);
}
