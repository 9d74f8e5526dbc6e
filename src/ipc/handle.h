/* SPDX-License-Identifier: MIT
 *
 * How a block that does not start its segment is given to another process. The driver's handle stands for the whole
 * segment, so such a block has a handle of ours, which names a record in a file that the exporting process keeps in
 * /dev/shm: there the importer finds the driver's handle and the block's place in what that opens.
 *
 * Who is alive and who has what open is told by locks on bytes of that file, which the kernel takes back when a process
 * ends, however it ends and whatever pid namespace it lives in: byte 0 is locked by the exporter as long as it lives,
 * byte 1 + n by every process that has record n open. The locks are of the open file description (F_OFD_SETLK), so
 * files that the program closes do not matter.
 *
 * An exporter first makes a record void and then asks whether it is locked; an importer first locks it and then reads
 * it. So either the importer finds it void, or the exporter finds it open.
 */
#ifndef POOLCUDA_IPC_HANDLE_H
#define POOLCUDA_IPC_HANDLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define IPC_HANDLE_BYTES 64 /* sizeof(CUipcMemHandle) */
#define IPC_FILE_PREFIX "poolcuda-ipc-"
#define IPC_NAME_BYTES 64

struct ipc_file_id {
    uint64_t words[2]; /* random */
};

/* In the bytes of a CUipcMemHandle. */
struct ipc_handle {
    char magic[8];
    struct ipc_file_id file;
    uint64_t serial; /* of the record: never used twice in a file */
    uint32_t number; /* of the record */
    uint32_t version;
    uint64_t reserved[2]; /* zero */
    uint64_t checksum;
};

_Static_assert(sizeof(struct ipc_handle) == IPC_HANDLE_BYTES, "a handle of ours looks like the driver's");

#define IPC_MAGIC "poolcuda" /* without its end */
#define IPC_VERSION 1

/* Record n stands at n * IPC_RECORD_BYTES. The serial is written last, and made 0 first. */
struct ipc_record {
    uint64_t serial;
    uint64_t offset;    /* of the block in the driver's allocation */
    uint64_t requested; /* bytes that the exporting program asked for */
    unsigned char driver_handle[IPC_HANDLE_BYTES];
    uint64_t reserved[4];
    uint64_t checksum;
};

#define IPC_RECORD_BYTES 128
_Static_assert(sizeof(struct ipc_record) == IPC_RECORD_BYTES, "two cache lines");

/* Of the bytes before it: chance alone does not make a handle or a record. */
uint64_t ipc_checksum(const void *data, size_t bytes);

/* Are these the bytes of a handle of ours? Any that begin with its magic are, whole or damaged: no driver makes such.
 */
bool ipc_handle_is_ours(const void *handle);
/* The handle, if it is whole. */
bool ipc_handle_read(const void *bytes, struct ipc_handle *handle);

/* "/poolcuda-ipc-UID-FILE": for shm_open. */
void ipc_file_name(char name[IPC_NAME_BYTES], uid_t uid, struct ipc_file_id id);

/* A descriptor that stays open: the program may close it, as daemons close what they do not know, and open a file of
 * its own under its number. So it is used only while it is what it was. */
struct ipc_file {
    int fd; /* -1: none */
    dev_t device;
    ino_t inode;
};

/* Keeps a fresh descriptor of a plain file of this user, under a number that programs do not expect to be theirs.
 * False, the descriptor closed, when it is no such file. */
bool ipc_file_keep(int fd, struct ipc_file *file);
bool ipc_file_is_there(const struct ipc_file *file);
void ipc_file_close(struct ipc_file *file);

/* Locks on the byte `at`: taken without waiting (false: somebody else's stands against it), given up, and asked about
 * (would another description's lock stand against an exclusive one? In doubt: yes). */
bool ipc_lock(int fd, off_t at, bool exclusive);
void ipc_unlock(int fd, off_t at);
bool ipc_is_locked(int fd, off_t at);

#endif
