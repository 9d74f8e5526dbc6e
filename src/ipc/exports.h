/* SPDX-License-Identifier: MIT
 *
 * The blocks that this process has given to others by handles of ours: their records, in a file that is made at the
 * first export (mode 0600, owner only) and unlinked at exit; one that a killed process left is unlinked by the next
 * process of the user that makes its own. All functions may be called from any thread and keep errno; none calls the
 * driver.
 */
#ifndef POOLCUDA_IPC_EXPORTS_H
#define POOLCUDA_IPC_EXPORTS_H

#include "ipc/handle.h"

struct ipc_export {
    uint64_t address;          /* of the block, here */
    uint64_t offset;           /* in its segment, in bytes */
    uint64_t requested;        /* bytes */
    const void *driver_handle; /* of the segment: IPC_HANDLE_BYTES */
};

#define EXPORTS_MOST 65536 /* at a time */

/* Make a handle for a block: its export's number (never 0), and the handle's bytes. 0 when there can be none: no shared
 * memory, no host memory, too many. Once the number is noted of the block, exports_noted is to follow. */
uint64_t exports_add(const struct ipc_export *export, unsigned char handle[IPC_HANDLE_BYTES]);
void exports_noted(uint64_t export);

/* The same bytes again. False when there is no such export. */
bool exports_handle(uint64_t export, unsigned char handle[IPC_HANDLE_BYTES]);

/* The block was freed: from now on nobody can open it. True when nobody has it open any more: then the number means
 * nothing from now on. */
bool exports_over(uint64_t export);

/* exports_over of each that was noted and that `known` denies. `known` is called with a lock of exports held, which
 * exports_* take. */
void exports_sweep(bool (*known)(void *arg, uint64_t export, uint64_t address), void *arg);

/* Was the handle made by this process? */
bool exports_is_own(const struct ipc_handle *handle);

/* The file goes (at exit); in a forked child: it stays its parent's. */
void exports_finish(void);
void exports_forget_in_child(void);

#endif
