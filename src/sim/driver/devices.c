/* SPDX-License-Identifier: MIT
 *
 * The devices: how many, which of them the process sees, and what they say about themselves.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

struct device devices[DEVICE_MAX];
int device_count;

static void device_identify(struct device *device, int physical) {
    device->physical = physical;
    device->total_bytes = (size_t)settings.memory_mb << 20;
    static const char family[] = "SIMULATED GPU ";
    memcpy(device->uuid.bytes, family, sizeof(family) - 1);
    device->uuid.bytes[14] = (char)(0xa0 + physical);
    device->uuid.bytes[15] = (char)(physical + 1);
}

static void uuid_text(const struct device *device, char *text, size_t size) {
    const unsigned char *const b = (const unsigned char *)device->uuid.bytes;
    snprintf(text, size, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2],
             b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

/* The number of the device that an entry of CUDA_VISIBLE_DEVICES names: an integer, or a prefix that fits one uuid
 * only. -1 if it names none. */
static int visible_entry(const char *entry) {
    while (isspace((unsigned char)*entry)) entry++;
    if (isdigit((unsigned char)*entry)) {
        char *end;
        const unsigned long number = strtoul(entry, &end, 10);
        while (isspace((unsigned char)*end)) end++;
        return *end == '\0' && number < settings.devices ? (int)number : -1;
    }
    int found = -1;
    for (int physical = 0; strncmp(entry, "GPU-", 4) == 0 && physical < (int)settings.devices; physical++) {
        struct device candidate;
        char text[64];
        device_identify(&candidate, physical);
        uuid_text(&candidate, text, sizeof(text));
        if (strncmp(text, entry, strcspn(entry, " ")) != 0) continue;
        if (found >= 0) return -1;
        found = physical;
    }
    return found;
}

static bool is_listed(int physical) {
    for (int i = 0; i < device_count; i++)
        if (devices[i].physical == physical) return true;
    return false;
}

/* As the driver reads it: in the order given, up to the first entry that names no device; a device twice means none. */
CUresult devices_start(void) {
    const char *const visible = getenv("CUDA_VISIBLE_DEVICES");
    device_count = 0;
    if (visible == NULL) {
        for (; device_count < (int)settings.devices; device_count++)
            device_identify(&devices[device_count], device_count);
    } else {
        char entry[64];
        const char *list = visible;
        while (device_count < DEVICE_MAX && settings_next_entry(&list, entry, sizeof(entry))) {
            const int physical = visible_entry(entry);
            if (physical < 0) break;
            if (is_listed(physical)) {
                device_count = 0;
                break;
            }
            device_identify(&devices[device_count++], physical);
        }
    }
    for (int i = 0; i < device_count; i++) {
        devices[i].ordinal = i;
        pthread_mutex_init(&devices[i].primary_lock, NULL);
    }
    return device_count > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

static CUresult device_get(CUdevice *device, int ordinal) {
    if (device == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (device_of(ordinal) == NULL) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuDeviceGet, (CUdevice * device, int ordinal), device_get(device, ordinal))

static CUresult device_get_count(int *count) {
    if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
    *count = device_count;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuDeviceGetCount, (int *count), device_get_count(count))

static CUresult device_get_name(char *name, int size, CUdevice ordinal) {
    if (name == NULL || size <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (device_of(ordinal) == NULL) return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)size, "Simulated GPU");
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuDeviceGetName, (char *name, int size, CUdevice ordinal), device_get_name(name, size, ordinal))

static CUresult device_get_uuid(CUuuid *uuid, CUdevice ordinal) {
    if (uuid == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (device_of(ordinal) == NULL) return CUDA_ERROR_INVALID_DEVICE;
    *uuid = devices[ordinal].uuid;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuDeviceGetUuid, (CUuuid * uuid, CUdevice ordinal), device_get_uuid(uuid, ordinal))
DRIVER_CALL(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice ordinal), device_get_uuid(uuid, ordinal))

static CUresult device_total_memory(size_t *bytes, CUdevice ordinal) {
    if (bytes == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (device_of(ordinal) == NULL) return CUDA_ERROR_INVALID_DEVICE;
    *bytes = devices[ordinal].total_bytes;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice ordinal), device_total_memory(bytes, ordinal))

/* The bus of the first device; the others follow. */
enum { PCI_BUS_FIRST = 0x17 };

static CUresult device_get_pci(char *text, int size, CUdevice ordinal) {
    if (text == NULL || size <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (device_of(ordinal) == NULL) return CUDA_ERROR_INVALID_DEVICE;
    char full[16];
    const int length = snprintf(full, sizeof(full), "0000:%02X:00.0", PCI_BUS_FIRST + devices[ordinal].physical);
    if (length >= size) return CUDA_ERROR_INVALID_VALUE;
    memcpy(text, full, (size_t)length + 1);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuDeviceGetPCIBusId, (char *text, int size, CUdevice ordinal), device_get_pci(text, size, ordinal))

static CUresult device_by_pci(CUdevice *device, const char *text) {
    unsigned domain, bus, slot;
    if (device == NULL || text == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3) {
        domain = 0;
        if (sscanf(text, "%x:%x", &bus, &slot) != 2) return CUDA_ERROR_INVALID_VALUE;
    }
    for (int i = 0; i < device_count; i++) {
        if (domain == 0 && slot == 0 && bus == (unsigned)(PCI_BUS_FIRST + devices[i].physical)) {
            *device = i;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}
DRIVER_CALL(cuDeviceGetByPCIBusId, (CUdevice * device, const char *text), device_by_pci(device, text))

static int attribute_value(const struct device *device, CUdevice_attribute attribute) {
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return 9;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        return 0;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        return PCI_BUS_FIRST + device->physical;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return DEVICE_MULTIPROCESSORS;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
        return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
        return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
        return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
        return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
        return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
        return 2048;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
        return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
        return 49152;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        return 232448;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        return 233472;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
        return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
        return 65536;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
        return 1980000;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
        return 2619000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
        return 5120;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        return 52428800;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
        return 512;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
        return 32;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
        return 3;
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_ECC_ENABLED:
        return 1;
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
        return CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    default:
        return 0; /* a feature that is not simulated */
    }
}

static CUresult device_get_attribute(int *value, CUdevice_attribute attribute, CUdevice ordinal) {
    if (value == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (device_of(ordinal) == NULL) return CUDA_ERROR_INVALID_DEVICE;
    if ((int)attribute < 1 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
    *value = attribute_value(&devices[ordinal], attribute);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice ordinal),
            device_get_attribute(value, attribute, ordinal))

static CUresult device_capability(int *major, int *minor, CUdevice ordinal) {
    if (major == NULL || minor == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (device_of(ordinal) == NULL) return CUDA_ERROR_INVALID_DEVICE;
    *major = attribute_value(&devices[ordinal], CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    *minor = attribute_value(&devices[ordinal], CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuDeviceComputeCapability, (int *major, int *minor, CUdevice ordinal),
            device_capability(major, minor, ordinal))

static CUresult device_can_access_peer(int *can, CUdevice ordinal, CUdevice peer) {
    if (can == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (device_of(ordinal) == NULL || device_of(peer) == NULL) return CUDA_ERROR_INVALID_DEVICE;
    *can = ordinal != peer;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuDeviceCanAccessPeer, (int *can, CUdevice ordinal, CUdevice peer),
            device_can_access_peer(can, ordinal, peer))

static CUresult device_p2p(int *value, CUdevice_P2PAttribute attribute, CUdevice ordinal, CUdevice peer) {
    if (value == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (device_of(ordinal) == NULL || device_of(peer) == NULL || ordinal == peer) return CUDA_ERROR_INVALID_DEVICE;
    switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
        *value = 0;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
        *value = 1;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        *value = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}
DRIVER_CALL(cuDeviceGetP2PAttribute, (int *value, CUdevice_P2PAttribute attribute, CUdevice ordinal, CUdevice peer),
            device_p2p(value, attribute, ordinal, peer))
