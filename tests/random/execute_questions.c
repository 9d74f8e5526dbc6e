/* SPDX-License-Identifier: MIT
 *
 * What the driver says of blocks, against what the program knows of them.
 */
#include <inttypes.h>
#include <pthread.h>

#include "doors.h"
#include "execute.h"
#include "tally.h"

enum { IDS_KEPT = 65536 };

/* The buffer ids that were ever told, and of which block: one is never told of two. */
static pthread_mutex_t ids_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    uint64_t id;
    uint32_t life;
} ids[IDS_KEPT];
static unsigned ids_count;

/* False when it belongs to another block. */
static bool id_is_own(uint64_t id, uint32_t life) {
    bool own = true;
    pthread_mutex_lock(&ids_lock);
    unsigned i = (unsigned)(id * 0x9e3779b97f4a7c15u >> 48) % IDS_KEPT;
    while (ids[i].life != 0 && ids[i].id != id) i = (i + 1) % IDS_KEPT;
    if (ids[i].life != 0)
        own = ids[i].life == life;
    else if (ids_count < IDS_KEPT / 2)
        ids[i].id = id, ids[i].life = life, ids_count++;
    pthread_mutex_unlock(&ids_lock);
    return own;
}

/* The range that holds the address, or that none does. */
static bool look_at_range(const struct operation *operation, size_t number, const struct live_block *block,
                          CUdeviceptr address) {
    CUdeviceptr base = 0;
    size_t bytes = 0;
    const bool inside = address < block->address + block->bytes;
    const int answer =
        (int)BY_DOOR(operation, cuMemGetAddressRange, "cuMemGetAddressRange_v2", 3020)(&base, &bytes, address);
    if (!inside && answer == CUDA_ERROR_NOT_FOUND) return true;
    if (!expect(number, answer, "cuMemGetAddressRange", 0, 0)) return false;
    if (inside ? base == block->address && bytes == block->bytes : base >= block->address + block->bytes) return true;
    fail(number, "block %u at %" PRIx64 " of %" PRIu64 " bytes: %" PRIx64 " is said to be in %zu bytes at %" PRIx64,
         operation->block, block->address, block->bytes, (uint64_t)address, bytes, (uint64_t)base);
    return false;
}

static bool look_at_attributes(const struct operation *operation, size_t number, struct live_block *block,
                               CUdeviceptr address) {
    CUmemorytype type = 0;
    CUdeviceptr start = 0, told = 0;
    size_t bytes = 0;
    unsigned long long id = 0;
    int ordinal = -1;
    unsigned managed = 1;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                        CU_POINTER_ATTRIBUTE_RANGE_SIZE,     CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                        CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    void *values[] = {&type, &start, &bytes, &id, &ordinal, &managed, &told};
    enum { COUNT = sizeof values / sizeof values[0] };
    if (operation->offset % 2 == 0) {
        if (!DO(BY_DOOR(operation, cuPointerGetAttributes, "cuPointerGetAttributes", 7000)(COUNT, attributes, values,
                                                                                           address)))
            return false;
    } else {
        for (unsigned i = 0; i < COUNT; i++)
            if (!DO(BY_DOOR(operation, cuPointerGetAttribute, "cuPointerGetAttribute", 4000)(values[i], attributes[i],
                                                                                             address)))
                return false;
    }
    const char *wrong = NULL;
    uint64_t before = 0;
    if (type != CU_MEMORYTYPE_DEVICE) wrong = "type";
    if (start != block->address) wrong = "start";
    if (bytes != block->bytes) wrong = "size";
    if (ordinal != block->device) wrong = "device";
    if (managed != 0) wrong = "being managed";
    if (told != address) wrong = "address";
    if (!atomic_compare_exchange_strong(&block->buffer_id, &before, id) && before != id) wrong = "id, that changed";
    if (!id_is_own(id, block->life)) wrong = "id, another block's";
    if (wrong == NULL) return true;
    fail(number,
         "block %u at %" PRIx64 " of %" PRIu64 " bytes on device %u, asked at %" PRIx64
         ": wrong %s (type %d, start %" PRIx64 ", %zu bytes, id %llu, device %d, managed %u, address %" PRIx64 ")",
         operation->block, block->address, block->bytes, block->device, (uint64_t)address, wrong, (int)type,
         (uint64_t)start, bytes, id, ordinal, managed, (uint64_t)told);
    return false;
}

/* The memory pool that it came from, as long as there is one. */
static bool look_at_pool(const struct operation *operation, size_t number, const struct live_block *block) {
    CUmemoryPool told = NULL;
    const bool destroyed = block->async && running.memory_pools[block->memory_pool].handle == NULL;
    if (destroyed || !running.program->settings.async) return true;
    const CUmemoryPool expected = block->async ? running.memory_pools[block->memory_pool].handle : NULL;
    if (!DO(BY_DOOR(operation, cuPointerGetAttribute, "cuPointerGetAttribute",
                    4000)(&told, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, block->address)))
        return false;
    if (told == expected) return true;
    fail(number, "block %u is said to be of memory pool %p, not %p", operation->block, (void *)told, (void *)expected);
    return false;
}

bool look_up(const struct operation *operation, size_t number) {
    struct live_block *block = &running.blocks[operation->block];
    struct cudaPointerAttributes attributes;
    if (block->address == 0) return true;
    const CUdeviceptr address = block->address + operation->offset % block->bytes;
    if (!look_at_range(operation, number, block, address) ||
        !look_at_range(operation, number, block, block->address + block->bytes) ||
        !look_at_attributes(operation, number, block, address) || !look_at_pool(operation, number, block) ||
        !DO(cudaPointerGetAttributes(&attributes, (void *)(uintptr_t)address)))
        return false;
    TALLY(look_ups);
    if (attributes.type == cudaMemoryTypeDevice && attributes.device == block->device) return true;
    fail(number, "block %u is said to be of type %d on device %d", operation->block, (int)attributes.type,
         attributes.device);
    return false;
}

/* The next owner of the memory must not inherit it: but a neighbour may have marked all, so that is not looked at. */
bool mark(const struct operation *operation, size_t number) {
    const struct live_block *block = &running.blocks[operation->block];
    const unsigned on = 1;
    unsigned is = 0;
    if (block->address == 0) return true;
    const CUdeviceptr address = block->address + operation->offset % block->bytes;
    PROGRAM_DID(marks);
    if (!DO(BY_DOOR(operation, cuPointerSetAttribute, "cuPointerSetAttribute",
                    6000)(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address)) ||
        !DO(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block->address)))
        return false;
    if (is == 1) return true;
    fail(number, "block %u was marked, and is said to be not: %u", operation->block, is);
    return false;
}
