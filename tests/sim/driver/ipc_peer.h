/* SPDX-License-Identifier: MIT
 *
 * What a test asks another process to do: it sends a command through a socket, and gets one answer for each.
 */
#ifndef SIM_IPC_PEER_H
#define SIM_IPC_PEER_H

#include <cuda.h>
#include <stdint.h>

enum { PEER_CONNECTION = 30 /* the descriptor of its end of the socket */ };

enum peer_what {
    PEER_ALLOC,       /* `bytes` of plain memory -> value */
    PEER_FREE,        /* at `address` */
    PEER_FILL,        /* `bytes` at `address` with `number` */
    PEER_READ,        /* the first byte at `address` -> value */
    PEER_EXPORT,      /* `address` -> handle */
    PEER_OPEN,        /* `handle` -> value */
    PEER_CLOSE,       /* `address` */
    PEER_RESET,       /* the primary context of device 0 */
    PEER_SPAWN,       /* forks a child that lives until the socket is closed */
    PEER_CLOSE_FILES, /* all descriptors but the socket's */
    PEER_TAKE_FILES,  /* opens files until every low descriptor is taken */
    PEER_POOL,        /* makes a pool that can be exported -> value, descriptor */
    PEER_POOL_ALLOC,  /* `bytes` of the pool `number` -> value */
    PEER_POOL_EXPORT, /* `address` -> data */
    PEER_POOL_DESTROY /* `number` */
};

struct peer_command {
    enum peer_what what;
    uint64_t address, bytes, number;
    CUipcMemHandle handle;
};

struct peer_answer {
    CUresult result;
    uint64_t value;
    union {
        CUipcMemHandle handle;
        CUmemPoolPtrExportData data;
    };
    int descriptor; /* sent beside it; -1: none */
};

#endif
