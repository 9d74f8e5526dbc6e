/* SPDX-License-Identifier: MIT
 *
 * Look-ups of entry points by name and version, and the names of result codes.
 */
#include <string.h>

#include "driver.h"

/* An old driver lacks what came later, and what SIM_MISSING names. */
bool symbols_is_missing(const struct name_entry *entry) {
    char name[128];
    const char *list = settings.missing;
    if (entry->version > (int)settings.driver_version) return true;
    while (settings_next_entry(&list, name, sizeof(name)))
        if (strcmp(name, entry->base) == 0 || strcmp(name, entry->symbol) == 0) return true;
    return false;
}

/* The newest revision not above `version`. *known: the name exists in some revision or form. */
static const struct name_entry *find_revision(const char *name, int version, bool per_thread, bool *known) {
    const struct name_entry *found = NULL;
    for (unsigned i = 0; i < NAME_COUNT; i++) {
        const struct name_entry *const entry = &name_table[i];
        if (entry->per_thread != per_thread || strcmp(entry->base, name) != 0 || symbols_is_missing(entry)) continue;
        *known = true;
        if (entry->version <= version && (found == NULL || entry->version > found->version)) found = entry;
    }
    return found;
}

static CUresult look_up(const char *name, void **function, int version, cuuint64_t flags,
                        CUdriverProcAddressQueryResult *status) {
    const cuuint64_t per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (name == NULL || function == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (flags != 0 && flags != CU_GET_PROC_ADDRESS_LEGACY_STREAM && flags != per_thread)
        return CUDA_ERROR_INVALID_VALUE;
    if (version > (int)settings.driver_version) return CUDA_ERROR_INVALID_VALUE;
    bool known = false;
    const struct name_entry *entry = flags == per_thread ? find_revision(name, version, true, &known) : NULL;
    if (entry == NULL) entry = find_revision(name, version, false, &known);
    *function = NULL;
    if (entry != NULL) memcpy(function, &entry->function, sizeof(*function));
    if (status != NULL)
        *status = entry != NULL ? CU_GET_PROC_ADDRESS_SUCCESS
                  : known       ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}

/* Both forms answer before cuInit: a runtime starts with them. */

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    entry_note(entry_current_thread(), NAME_cuGetProcAddress_v2);
    const CUresult answer = entry_apply_rules(NAME_cuGetProcAddress_v2);
    return answer != CUDA_SUCCESS ? answer : look_up(name, function, version, flags, status);
}

/* The old form, without a status, has no way to say that there is nothing but its answer. */
CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags) {
    entry_note(entry_current_thread(), NAME_cuGetProcAddress);
    const CUresult answer = entry_apply_rules(NAME_cuGetProcAddress);
    if (answer != CUDA_SUCCESS) return answer;
    return look_up(name, function, version, flags, NULL);
}

struct code {
    CUresult code;
    const char *name, *text;
};

static const struct code codes[] = {
#define CODE(name, text) \
    { CUDA_##name, "CUDA_" #name, text }
    CODE(SUCCESS, "no error"),
    CODE(ERROR_INVALID_VALUE, "invalid argument"),
    CODE(ERROR_OUT_OF_MEMORY, "out of memory"),
    CODE(ERROR_NOT_INITIALIZED, "initialization error"),
    CODE(ERROR_DEINITIALIZED, "driver shutting down"),
    CODE(ERROR_PROFILER_DISABLED, "profiler disabled while using external profiling tool"),
    CODE(ERROR_STUB_LIBRARY, "CUDA driver is a stub library"),
    CODE(ERROR_CALL_REQUIRES_NEWER_DRIVER, "API call is not supported in the installed CUDA driver"),
    CODE(ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable"),
    CODE(ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    CODE(ERROR_INVALID_DEVICE, "invalid device ordinal"),
    CODE(ERROR_DEVICE_NOT_LICENSED, "device doesn't have valid Grid license"),
    CODE(ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    CODE(ERROR_INVALID_CONTEXT, "invalid device context"),
    CODE(ERROR_MAP_FAILED, "mapping of buffer object failed"),
    CODE(ERROR_UNMAP_FAILED, "unmapping of buffer object failed"),
    CODE(ERROR_ALREADY_MAPPED, "resource already mapped"),
    CODE(ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    CODE(ERROR_UNSUPPORTED_LIMIT, "limit is not supported on this architecture"),
    CODE(ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices"),
    CODE(ERROR_INVALID_PTX, "a PTX JIT compilation failed"),
    CODE(ERROR_INVALID_SOURCE, "device kernel image is invalid"),
    CODE(ERROR_FILE_NOT_FOUND, "file not found"),
    CODE(ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS"),
    CODE(ERROR_INVALID_HANDLE, "invalid resource handle"),
    CODE(ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    CODE(ERROR_LOSSY_QUERY, "attempted introspection would be semantically lossy"),
    CODE(ERROR_NOT_FOUND, "named symbol not found"),
    CODE(ERROR_NOT_READY, "device not ready"),
    CODE(ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    CODE(ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    CODE(ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
    CODE(ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    CODE(ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"),
    CODE(ERROR_PRIMARY_CONTEXT_ACTIVE, "cannot set while device is active in this process"),
    CODE(ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    CODE(ERROR_ASSERT, "device-side assert triggered"),
    CODE(ERROR_TOO_MANY_PEERS, "peer mapping resources exhausted"),
    CODE(ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the requested memory range is already mapped"),
    CODE(ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region"),
    CODE(ERROR_HARDWARE_STACK_ERROR, "hardware stack error"),
    CODE(ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered"),
    CODE(ERROR_MISALIGNED_ADDRESS, "misaligned address"),
    CODE(ERROR_INVALID_ADDRESS_SPACE, "operation not supported on global/shared address space"),
    CODE(ERROR_INVALID_PC, "invalid program counter"),
    CODE(ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    CODE(ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks in cooperative launch"),
    CODE(ERROR_NOT_PERMITTED, "operation not permitted"),
    CODE(ERROR_NOT_SUPPORTED, "operation not supported"),
    CODE(ERROR_SYSTEM_NOT_READY, "system not yet initialized"),
    CODE(ERROR_SYSTEM_DRIVER_MISMATCH, "system has unsupported display driver / cuda driver combination"),
    CODE(ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    CODE(ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"),
    CODE(ERROR_STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences"),
    CODE(ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began"),
    CODE(ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    CODE(ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream"),
    CODE(ERROR_STREAM_CAPTURE_IMPLICIT, "operation would make the legacy stream depend on a capturing blocking stream"),
    CODE(ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream"),
    CODE(ERROR_STREAM_CAPTURE_WRONG_THREAD, "attempt to terminate a thread-local capture sequence from another thread"),
    CODE(ERROR_TIMEOUT, "wait operation timed out"),
    CODE(ERROR_GRAPH_EXEC_UPDATE_FAILURE, "the graph update was not performed because it included changes which "
                                          "violated constraints specific to instantiated graph update"),
    CODE(ERROR_INVALID_RESOURCE_TYPE, "invalid resource type"),
    CODE(ERROR_INVALID_RESOURCE_CONFIGURATION, "invalid resource configuration"),
    CODE(ERROR_EXTERNAL_DEVICE, "an async error has occured in external entity outside of CUDA"),
    CODE(ERROR_UNKNOWN, "unknown error"),
#undef CODE
};

static const struct code *find_code(CUresult code) {
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        if (codes[i].code == code) return &codes[i];
    return NULL;
}

CUresult cuGetErrorName(CUresult code, const char **name) {
    entry_note(entry_current_thread(), NAME_cuGetErrorName);
    if (name == NULL) return CUDA_ERROR_INVALID_VALUE;
    const struct code *const found = find_code(code);
    *name = found != NULL ? found->name : NULL;
    return found != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult code, const char **text) {
    entry_note(entry_current_thread(), NAME_cuGetErrorString);
    if (text == NULL) return CUDA_ERROR_INVALID_VALUE;
    const struct code *const found = find_code(code);
    *text = found != NULL ? found->text : NULL;
    return found != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
