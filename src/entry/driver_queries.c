/* SPDX-License-Identifier: MIT
 *
 * The driver door for questions about memory. The driver is asked first, so that its errors come before ours; then what
 * it says of a segment is corrected to what holds for the block. An address inside a segment but in no live block is
 * unknown memory to the program: the driver is asked about address 0 instead, which it does not know either.
 */
#include "entry/process.h"

#include <string.h>

#include "device/driver.h"
#include "ipc/imports.h"

/* Keeps our buffer ids apart from the driver's, which count up from small numbers. */
#define BUFFER_ID_BIT ((unsigned long long)1 << 63)

/* Those of blocks of other processes, which the driver opened with their segments. */
#define IMPORT_ID_BIT ((unsigned long long)1 << 62)

enum place { PLACE_FOREIGN, PLACE_BLOCK, PLACE_IMPORT, PLACE_NOWHERE };

static enum place place_of(CUdeviceptr address, struct pool_block_info *info) {
    struct pool_system *pool = process_pool();
    const int code = pool ? pool_find(pool, (uint64_t)address, info) : POOL_PASS;
    if (code == DEVICE_OK) return PLACE_BLOCK;
    if (code != POOL_PASS) return PLACE_NOWHERE;
    struct import_info import;
    if (!imports_find((uint64_t)address, &import)) return PLACE_FOREIGN;
    *info = (struct pool_block_info){
        .base = import.address, .requested = import.requested, .id = import.id | IMPORT_ID_BIT, .sync_memops = true};
    return PLACE_IMPORT;
}

static bool is_known(enum place place) {
    return place == PLACE_BLOCK || place == PLACE_IMPORT;
}

CUresult entry_cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    if (!symbols_driver() || !REAL(cuMemGetInfo_v2)) return PROCESS_NO_DRIVER;
    struct pool_system *pool = process_pool();
    if (!pool || !free_bytes) return REAL(cuMemGetInfo_v2)(free_bytes, total_bytes);
    size_t now_free = 0, total = 0;
    const CUresult result = REAL(cuMemGetInfo_v2)(&now_free, &total);
    if (result != CUDA_SUCCESS) return result;
    struct device_context context;
    uint64_t ours = 0;
    if (process_context(&context) == DEVICE_OK) {
        uint64_t of_async;
        ours = pool_releasable(pool, context.ordinal, &of_async);
        ours += device_driver_memory_pool_slack(process_driver(), context.ordinal, of_async);
    }
    *free_bytes = ours < total - now_free ? now_free + ours : total;
    if (total_bytes) *total_bytes = total;
    return result;
}

CUresult entry_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
    if (!symbols_driver() || !REAL(cuMemGetAddressRange_v2)) return PROCESS_NO_DRIVER;
    struct pool_block_info info;
    const enum place place = place_of(address, &info);
    if (place == PLACE_FOREIGN) return REAL(cuMemGetAddressRange_v2)(base, size, address);
    const CUresult result = REAL(cuMemGetAddressRange_v2)(NULL, NULL, is_known(place) ? address : 0);
    if (result != CUDA_SUCCESS) return result;
    if (place == PLACE_NOWHERE) return CUDA_ERROR_NOT_FOUND;
    if (base) *base = (CUdeviceptr)info.base;
    if (size) *size = info.requested;
    return result;
}

/* What the driver said of the segment, for the block. */
static void correct(CUpointer_attribute attribute, void *data, const struct pool_block_info *info) {
    const unsigned long long id = info->id | BUFFER_ID_BIT;
    const CUdeviceptr base = (CUdeviceptr)info->base;
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        memcpy(data, &base, sizeof base);
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        memcpy(data, &info->requested, sizeof info->requested);
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        memcpy(data, &id, sizeof id);
        break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        /* A boolean of undocumented width: clearing its first byte clears 1 in any. */
        if (!info->sync_memops) memset(data, 0, 1);
        break;
    default:
        break;
    }
}

CUresult entry_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address) {
    if (!symbols_driver() || !REAL(cuPointerGetAttribute)) return PROCESS_NO_DRIVER;
    struct pool_block_info info;
    const enum place place = place_of(address, &info);
    const CUresult result = REAL(cuPointerGetAttribute)(data, attribute, place == PLACE_NOWHERE ? 0 : address);
    if (result == CUDA_SUCCESS && place == PLACE_NOWHERE) return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && is_known(place) && data) correct(attribute, data, &info);
    return result;
}

CUresult entry_cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data,
                                      CUdeviceptr address) {
    if (!symbols_driver() || !REAL(cuPointerGetAttributes)) return PROCESS_NO_DRIVER;
    struct pool_block_info info;
    const enum place place = place_of(address, &info);
    const CUresult result = REAL(cuPointerGetAttributes)(count, attributes, data, place == PLACE_NOWHERE ? 0 : address);
    if (result != CUDA_SUCCESS || place == PLACE_FOREIGN || !attributes || !data) return result;
    for (unsigned int i = 0; i < count; i++) {
        if (!data[i]) continue;
        if (is_known(place)) {
            correct(attributes[i], data[i], &info);
        } else if (attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER) {
            memcpy(data[i], &address, sizeof address); /* of unknown memory the address itself is told */
        }
    }
    return result;
}

CUresult entry_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address) {
    if (!symbols_driver() || !REAL(cuPointerSetAttribute)) return PROCESS_NO_DRIVER;
    struct pool_system *pool = process_pool();
    struct pool_block_info info;
    const enum place place = place_of(address, &info);
    if (place != PLACE_BLOCK || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !value)
        return REAL(cuPointerSetAttribute)(value, attribute, place == PLACE_NOWHERE ? 0 : address);
    unsigned int on;
    memcpy(&on, value, sizeof on);
    const int code = pool_set_sync_memops(pool, (uint64_t)address, on != 0);
    return code == POOL_PASS ? REAL(cuPointerSetAttribute)(value, attribute, address) : (CUresult)code;
}
