/* SPDX-License-Identifier: MIT
 *
 * Blocks: allocated, written, read and freed, rightly and wrongly.
 */
#include <inttypes.h>
#include <pthread.h>

#include "doors.h"
#include "execute.h"
#include "kernels.h"
#include "stamp.h"
#include "tally.h"

static _Atomic(uint32_t) lives;

/* The driver's functions of a stream, by the operation's door. */
#define OF_STREAM(operation, field, name, since)                                                                    \
    ((__typeof__(family(operation)->field))door_driver(                                                             \
        (operation)->door, name, (operation)->per_thread ? name "_ptsz" : name, since, (operation)->block % 2 == 0, \
        (operation)->per_thread, (void *)family(operation)->field))
#define OF_STREAM_BY_RUNTIME(operation, field, name)     \
    ((__typeof__(family(operation)->field))door_runtime( \
        (operation)->door, (operation)->per_thread ? name "_ptsz" : name, (void *)family(operation)->field))

static int allocate_plain(const struct operation *operation, CUdeviceptr *address) {
    if (operation->by_driver)
        return (int)BY_DOOR(operation, cuMemAlloc, "cuMemAlloc_v2", 3020)(address, operation->bytes);
    void *pointer = NULL;
    const int answer =
        (int)((cudaError_t(*)(void **, size_t))BY_RUNTIME_DOOR(operation, cudaMalloc))(&pointer, operation->bytes);
    *address = (CUdeviceptr)(uintptr_t)pointer;
    return answer;
}

static int allocate_async(const struct operation *operation, CUdeviceptr *address) {
    const cudaStream_t stream = stream_of(operation);
    const cudaMemPool_t pool = running.memory_pools[operation->source].handle;
    const bool named = operation->memory_pool != NOBODY;
    void *pointer = NULL;
    int answer;
    if (named) PROGRAM_DID(explicit_pools);
    if (named && operation->by_driver)
        return (int)OF_STREAM(operation, driver_malloc_from_pool, "cuMemAllocFromPoolAsync",
                              11020)(address, operation->bytes, pool, stream);
    if (operation->by_driver)
        return (int)OF_STREAM(operation, driver_malloc_async, "cuMemAllocAsync", 11020)(address, operation->bytes,
                                                                                        stream);
    if (named)
        answer = (int)OF_STREAM_BY_RUNTIME(operation, malloc_from_pool,
                                           "cudaMallocFromPoolAsync")(&pointer, operation->bytes, pool, stream);
    else
        answer =
            (int)OF_STREAM_BY_RUNTIME(operation, malloc_async, "cudaMallocAsync")(&pointer, operation->bytes, stream);
    *address = (CUdeviceptr)(uintptr_t)pointer;
    return answer;
}

bool allocate(const struct operation *operation, size_t number) {
    struct live_block *block = &running.blocks[operation->block];
    const bool async = operation->kind == DO_ALLOC_ASYNC;
    CUdeviceptr address = 0;
    int answer;
    block->context = operation->context;
    kernels_allocator_entered();
    answer = async ? allocate_async(operation, &address) : allocate_plain(operation, &address);
    kernels_allocator_left();
    const bool scarce = running.program->settings.scarce;
    if (!expect(number, answer, async ? "an allocation in stream order" : "an allocation", 0, scarce ? 2 : 0))
        return false;
    if (answer != 0) {
        TALLY(out_of_memory);
        cudaGetLastError();
        return true;
    }
    if (async) {
        kernels_allocated_async(address, operation->bytes, stream_named(operation->stream));
        TALLY(async_allocations);
    } else {
        kernels_allocated(address, operation->bytes);
        TALLY(plain_allocations);
    }
    block->address = address;
    block->bytes = operation->bytes;
    block->async = async;
    block->memory_pool = async ? operation->source : NOBODY;
    block->device = async ? running.memory_pools[operation->source].device : running.devices[operation->context];
    if (async) atomic_fetch_add(&running.memory_pools[operation->source].live_bytes, block->bytes);
    block->life = atomic_fetch_add(&lives, 1) + 1;
    atomic_store(&block->buffer_id, 0);
    atomic_store(&block->lane, 0);
    return true;
}

bool allocate_too_much(const struct operation *operation, size_t number) {
    CUdeviceptr address = 0;
    void *pointer = NULL;
    const cudaStream_t stream = operation->waits ? stream_of(operation) : NULL;
    int answer;
    if (operation->waits && operation->by_driver)
        answer = (int)family(operation)->driver_malloc_async(&address, operation->bytes, stream);
    else if (operation->waits)
        answer = (int)family(operation)->malloc_async(&pointer, operation->bytes, stream);
    else
        answer = operation->by_driver ? (int)cuMemAlloc(&address, operation->bytes)
                                      : (int)cudaMalloc(&pointer, operation->bytes);
    if (!expect(number, answer, "an allocation that is too large", 2, 2)) return false;
    if (!operation->by_driver && cudaGetLastError() != cudaErrorMemoryAllocation) {
        fail(number, "the last error is not that of the allocation");
        return false;
    }
    TALLY(out_of_memory);
    return true;
}

static int free_in_stream(const struct operation *operation, CUdeviceptr address, cudaStream_t stream) {
    if (operation->by_driver)
        return (int)OF_STREAM(operation, driver_free_async, "cuMemFreeAsync", 11020)(address, stream);
    return (int)OF_STREAM_BY_RUNTIME(operation, free_async, "cudaFreeAsync")((void *)(uintptr_t)address, stream);
}

struct freed_elsewhere {
    const struct operation *operation;
    CUdeviceptr address;
    int answer;
};

static void *free_bare(void *argument) {
    struct freed_elsewhere *freed = argument;
    /* The driver's function does not make a context current, so it is not for a thread that has none. */
    if (freed->operation->kind == DO_FREE)
        freed->answer = (int)BY_RUNTIME_DOOR(freed->operation, cudaFree)((void *)(uintptr_t)freed->address);
    else
        freed->answer = (int)BY_DOOR(freed->operation, cuMemFree, "cuMemFree_v2", 3020)(freed->address);
    return NULL;
}

/* By a thread that never called CUDA before. */
static int free_elsewhere(const struct operation *operation, CUdeviceptr address) {
    struct freed_elsewhere freed = {operation, address, cudaErrorUnknown};
    pthread_t thread;
    if (pthread_create(&thread, NULL, free_bare, &freed) != 0) return cudaErrorUnknown;
    pthread_join(thread, NULL);
    return freed.answer;
}

static int free_by(const struct operation *operation, CUdeviceptr address) {
    if (operation->strange) {
        PROGRAM_DID(frees_by_bare_threads);
        return free_elsewhere(operation, address);
    }
    if (operation->by_driver) return (int)BY_DOOR(operation, cuMemFree, "cuMemFree_v2", 3020)(address);
    return (int)BY_RUNTIME_DOOR(operation, cudaFree)((void *)(uintptr_t)address);
}

bool release(const struct operation *operation, size_t number) {
    struct live_block *block = &running.blocks[operation->block];
    const uint64_t address = block->address;
    /* What the program leans on is done even where the block could not be had; so it is below. */
    if (address == 0) return !operation->waits || (use_context(number, block->context) && DO(cuCtxSynchronize()));
    block->address = 0;
    block->freed_address = address;
    if (block->async) {
        struct live_memory_pool *pool = &running.memory_pools[block->memory_pool];
        atomic_fetch_sub(&pool->live_bytes, block->bytes);
        if (pool->handle == NULL) PROGRAM_DID(frees_after_the_pool);
    }
    tally_freed(address, block->bytes, atomic_load(&block->lane));
    if (operation->kind == DO_FREE_ASYNC) {
        const cudaStream_t stream = stream_of(operation);
        if (!block->async) TALLY(plain_frees_in_stream_order);
        kernels_freed_async(address, stream_named(operation->stream));
        return DO(free_in_stream(operation, address, stream));
    }
    if (block->async) TALLY(async_frees_by_cudafree);
    kernels_freed(address);
    return DO(free_by(operation, address));
}

static size_t live_pointers(CUdeviceptr address) {
    size_t count = 0;
    for (unsigned i = 0; i < BLOCKS_MAX; i++) count += running.blocks[i].address == address;
    return count;
}

/* Each is answered with 1, and the block, if it is in one, lives on. */
bool release_wrong(const struct operation *operation, size_t number) {
    const struct live_block *block = &running.blocks[operation->block];
    CUdeviceptr address = block->address;
    int expected = cudaErrorInvalidValue;
    switch (operation->other) {
    case WRONG_INTERIOR:
        address += 1 + operation->offset % (block->bytes - 1);
        break;
    case WRONG_GARBAGE:
        address = operation->offset;
        break;
    case WRONG_TWICE: /* unless it was given out again */
        address = live_pointers(block->freed_address) == 0 ? block->freed_address : 0;
        break;
    default:
        expected = CUDA_ERROR_INVALID_CONTEXT;
    }
    if (address == 0 || (block->address == 0 && operation->other != WRONG_TWICE && operation->other != WRONG_GARBAGE))
        return true;
    const int answer = operation->waits                   ? free_in_stream(operation, address, stream_of(operation))
                       : operation->other == WRONG_THREAD ? free_elsewhere(operation, address)
                                                          : free_by(operation, address);
    PROGRAM_DID(wrong_frees);
    TALLY(wrong_frees);
    cudaGetLastError();
    return expect(number, answer, "a wrong free", expected, expected);
}

bool read_back(const struct operation *operation, size_t number) {
    const struct touch *touch = &operation->touches[0];
    const struct live_block *block = &running.blocks[touch->block];
    const cudaStream_t stream = stream_of(operation);
    if (block->address == 0) return DO(family(operation)->stream_synchronize(stream));
    block_used(operation->stream, touch->block);
    unsigned char bytes[2 * STAMP_EDGE];
    const uint64_t edge = block->bytes < STAMP_EDGE ? block->bytes : STAMP_EDGE;
    const uint64_t last = block->bytes - edge;
    if (!DO(family(operation)->copy_async(bytes, (void *)(uintptr_t)block->address, edge, cudaMemcpyDeviceToHost,
                                          stream)) ||
        !DO(family(operation)->copy_async(bytes + edge, (void *)(uintptr_t)(block->address + last), edge,
                                          cudaMemcpyDeviceToHost, stream)) ||
        !DO(family(operation)->stream_synchronize(stream)))
        return false;
    for (uint64_t i = 0; i < 2 * edge; i++) {
        const uint64_t offset = i < edge ? i : last + i - edge;
        const unsigned char should = stamp_byte(touch->expected, offset);
        if (bytes[i] == should) continue;
        fail(number, "block %u holds %u at byte %" PRIu64 ", where stamp %" PRIu32 " has %u", touch->block, bytes[i],
             offset, touch->expected, should);
        return false;
    }
    return true;
}

bool fill(const struct operation *operation, size_t number) {
    const struct touch *touch = &operation->touches[0];
    const struct live_block *block = &running.blocks[touch->block];
    const cudaStream_t stream = stream_of(operation);
    if (block->address == 0) return launch(operation, number, operation->stream);
    block_used(operation->stream, touch->block);
    return DO(
        family(operation)->memset_async((void *)(uintptr_t)block->address, (int)touch->stamp, block->bytes, stream));
}
