/* SPDX-License-Identifier: MIT
 *
 * The blocks of other processes that this one has opened by handles of ours. All functions may be called from any
 * thread and keep errno; none calls the driver: the caller does between imports_begin and imports_end.
 */
#ifndef POOLCUDA_IPC_IMPORTS_H
#define POOLCUDA_IPC_IMPORTS_H

#include "ipc/handle.h"

/* What the record says, and the hold on it: as long as it is held, the exporter does not give the block out again. */
struct import_hold {
    uint64_t offset, requested;                    /* bytes */
    unsigned char driver_handle[IPC_HANDLE_BYTES]; /* opens the block's segment */
    struct ipc_file_id file;
    uint32_t number;
};

/* False, and *why in a few words, when the record cannot be had: another user's, a process that has ended, a block that
 * was freed. */
bool imports_hold(const struct ipc_handle *handle, struct import_hold *hold, const char **why);
void imports_give_up(const struct import_hold *hold);

/* The life of a context in which something is opened: its handle, and a number for each life of that. */
struct import_life {
    const void *context;
    uint64_t serial;
};

/* The segment was opened at `base`, as the driver counts it: the block is open once more, and the import's now. False
 * when host memory ran out; the hold is the caller's still. */
bool imports_opened(const struct import_hold *hold, uint64_t base, struct import_life life);

struct import_info {
    uint64_t address, requested; /* the block's */
    uint64_t base;               /* what the driver opened */
    uint64_t id;                 /* unique in the process */
};

/* The opened block that begins at `address`; for closing it: counted down, then the driver's close of info->base is to
 * follow, and imports_close_ended whether it succeeded. */
bool imports_close(uint64_t address, struct import_info *info);
void imports_close_ended(const struct import_info *info, bool closed);

/* The opened block that holds `address`. */
bool imports_find(uint64_t address, struct import_info *info);

/* The life is over, and what was opened in it is no more. */
void imports_context_gone(struct import_life life);

void imports_forget_in_child(void);

#endif
