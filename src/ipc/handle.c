/* SPDX-License-Identifier: MIT
 *
 * The bytes of handles, the names of files, and the locks that tell who is there.
 */
#include "ipc/handle.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t ipc_checksum(const void *data, size_t bytes) {
    /* FNV-1a, 64 bits (Fowler, Noll, Vo) */
    const unsigned char *at = data;
    uint64_t sum = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) sum = (sum ^ at[i]) * 0x100000001b3u;
    return sum;
}

bool ipc_handle_is_ours(const void *handle) {
    return memcmp(handle, IPC_MAGIC, sizeof((struct ipc_handle *)NULL)->magic) == 0;
}

bool ipc_handle_read(const void *bytes, struct ipc_handle *handle) {
    memcpy(handle, bytes, sizeof *handle);
    return ipc_handle_is_ours(bytes) && handle->version == IPC_VERSION && handle->serial != 0 &&
           handle->checksum == ipc_checksum(handle, offsetof(struct ipc_handle, checksum));
}

void ipc_file_name(char name[IPC_NAME_BYTES], uid_t uid, struct ipc_file_id id) {
    snprintf(name, IPC_NAME_BYTES, "/" IPC_FILE_PREFIX "%u-%016llx%016llx", (unsigned)uid,
             (unsigned long long)id.words[0], (unsigned long long)id.words[1]);
}

bool ipc_file_keep(int fd, struct ipc_file *file) {
    enum { HIGH = 100, LOWEST = 3 };
    struct stat status;
    *file = (struct ipc_file){.fd = -1};
    int kept = fcntl(fd, F_DUPFD_CLOEXEC, HIGH);
    if (kept < 0) kept = fcntl(fd, F_DUPFD_CLOEXEC, LOWEST);
    if (kept < 0 && fd >= LOWEST) { /* the last one that could be had */
        kept = fd;
    } else {
        close(fd);
    }
    if (kept < 0) return false;
    if (fstat(kept, &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid()) {
        close(kept);
        return false;
    }
    *file = (struct ipc_file){kept, status.st_dev, status.st_ino};
    return true;
}

bool ipc_file_is_there(const struct ipc_file *file) {
    struct stat status;
    return file->fd >= 0 && fstat(file->fd, &status) == 0 && status.st_dev == file->device &&
           status.st_ino == file->inode;
}

void ipc_file_close(struct ipc_file *file) {
    if (ipc_file_is_there(file)) close(file->fd);
    file->fd = -1;
}

static int lock_command(int fd, int command, off_t at, short type, short *found) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
    const int result = fcntl(fd, command, &lock);
    if (found) *found = lock.l_type;
    return result;
}

bool ipc_lock(int fd, off_t at, bool exclusive) {
    return lock_command(fd, F_OFD_SETLK, at, exclusive ? F_WRLCK : F_RDLCK, NULL) == 0;
}

void ipc_unlock(int fd, off_t at) {
    lock_command(fd, F_OFD_SETLK, at, F_UNLCK, NULL);
}

bool ipc_is_locked(int fd, off_t at) {
    short found = F_WRLCK;
    return lock_command(fd, F_OFD_GETLK, at, F_WRLCK, &found) != 0 || found != F_UNLCK;
}
