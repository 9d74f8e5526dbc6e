/* SPDX-License-Identifier: MIT
 *
 * The exporter's side of handles: numbers, records and the file they stand in.
 */
#include "ipc/exports.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "config/guard.h"
#include "config/log.h"

enum { RECORDS_MOST = EXPORTS_MOST };
enum { SCAN_NAMES = 4096, SCAN_FILES = 256 }; /* /dev/shm may be full of other things */
enum { ATTEMPTS = 4 };

struct entry {
    uint64_t serial;    /* 0: unused */
    uint64_t address;   /* of the block */
    uint32_t next_free; /* unused: the next one */
    uint32_t life;      /* of the file that has its record */
    bool noted;         /* its number is noted of the block */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static struct ipc_file file = {.fd = -1};
static struct ipc_file_id file_id;
static char file_name[IPC_NAME_BYTES];
static struct entry *entries;
static uint32_t entry_count, entry_room;
static uint32_t first_free = RECORDS_MOST; /* RECORDS_MOST: none */
static uint32_t file_life;                 /* how many files there were */
static uint64_t next_serial = 1;

/* No signal, no cancellation and no errno of these calls reaches the program. */
static void enter(struct guard *guard) {
    guard_enter(guard);
    pthread_mutex_lock(&lock);
}

static void leave(const struct guard *guard) {
    pthread_mutex_unlock(&lock);
    guard_leave(guard);
}

/* An export's number: its record and, above, the serial's lower bits, so that a late question does not meet another. It
 * has to fit what the pool can note of a block (40 bits). */
enum { NUMBER_BITS = 16, SERIAL_BITS = 24 };

static uint64_t export_number(uint32_t number) {
    return (entries[number].serial & ((UINT64_C(1) << SERIAL_BITS) - 1)) << NUMBER_BITS | number;
}

static struct entry *entry_of(uint64_t export) {
    const uint32_t number = export & ((1u << NUMBER_BITS) - 1);
    if (number >= entry_count || !entries[number].serial || export_number(number) != export) return NULL;
    return &entries[number];
}

static off_t record_at(uint32_t number) {
    return (off_t)number * IPC_RECORD_BYTES;
}

static off_t lock_at(uint32_t number) {
    return 1 + (off_t)number;
}

/* ---- the file ---- */

static struct ipc_file_id random_id(void) {
    struct ipc_file_id id;
    if (getrandom(&id, sizeof id, GRND_NONBLOCK) == (ssize_t)sizeof id) return id;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    id.words[0] = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    id.words[1] = (uint64_t)getpid() << 32 ^ (uint64_t)(uintptr_t)&id;
    return id;
}

/* A file of this user whose exporter lives no more, however it ended. */
static bool is_left_behind(int directory, const char *name) {
    struct stat status;
    const int fd = openat(directory, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return false;
    const bool left =
        fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() && !ipc_is_locked(fd, 0);
    close(fd);
    return left;
}

static void remove_left_behind(void) {
    static const char prefix[] = IPC_FILE_PREFIX;
    const int directory = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) return;
    _Alignas(struct dirent64) char buffer[1024]; /* the stack may be small */
    int names = 0, files = 0;
    ssize_t bytes;
    while (names < SCAN_NAMES && files < SCAN_FILES && (bytes = getdents64(directory, buffer, sizeof buffer)) > 0) {
        for (ssize_t at = 0; at < bytes && files < SCAN_FILES;) {
            const struct dirent64 *found = (const struct dirent64 *)(const void *)(buffer + at);
            at += found->d_reclen;
            names++;
            if (strncmp(found->d_name, prefix, sizeof prefix - 1) != 0) continue;
            files++;
            if (is_left_behind(directory, found->d_name)) unlinkat(directory, found->d_name, 0);
        }
    }
    close(directory);
}

/* A file that another process took for left behind, before its lock was there, is made anew. */
static void file_try(void) {
    struct stat status;
    file_id = random_id();
    ipc_file_name(file_name, geteuid(), file_id);
    const int fd = shm_open(file_name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || !ipc_file_keep(fd, &file)) return;
    if (fchmod(file.fd, 0600) == 0 && ipc_lock(file.fd, 0, true) && fstat(file.fd, &status) == 0 && status.st_nlink > 0)
        return;
    shm_unlink(file_name);
    ipc_file_close(&file);
}

/* Opened anew where the program has closed it. */
static bool file_again(void) {
    struct ipc_file again;
    const int fd = shm_open(file_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0);
    if (fd < 0 || !ipc_file_keep(fd, &again)) return false;
    if (again.device != file.device || again.inode != file.inode || !ipc_lock(again.fd, 0, true)) {
        ipc_file_close(&again);
        return false;
    }
    file = again;
    return true;
}

static bool file_is_usable(void) {
    return file.fd >= 0 && (ipc_file_is_there(&file) || file_again());
}

/* Where its name has gone with its lock, another takes its place: what had records in it is kept for ever, since nobody
 * can tell any more who has it open. */
static bool file_ready(void) {
    if (file_is_usable()) return true;
    if (file.fd >= 0) {
        file.fd = -1;
        file_life++;
    }
    remove_left_behind();
    for (int i = 0; i < ATTEMPTS && file.fd < 0; i++) file_try();
    if (file.fd < 0)
        log_line(LOG_WARNING, "IPC: no file for records can be made in /dev/shm: %s", strerrordesc_np(errno));
    return file.fd >= 0;
}

static bool write_all(const void *data, size_t bytes, off_t at) {
    ssize_t written;
    do written = pwrite(file.fd, data, bytes, at);
    while (written < 0 && errno == EINTR);
    return written == (ssize_t)bytes;
}

static bool record_write(uint32_t number, const struct ipc_export *export, uint64_t serial) {
    struct ipc_record record = {.serial = serial, .offset = export->offset, .requested = export->requested};
    memcpy(record.driver_handle, export->driver_handle, sizeof record.driver_handle);
    record.checksum = ipc_checksum(&record, offsetof(struct ipc_record, checksum));
    const size_t begin = sizeof record.serial;
    return write_all((const char *)&record + begin, sizeof record - begin, record_at(number) + (off_t)begin) &&
           write_all(&serial, sizeof serial, record_at(number));
}

static bool record_void(uint32_t number) {
    static const uint64_t none;
    return write_all(&none, sizeof none, record_at(number));
}

/* ---- numbers ---- */

static void number_put(uint32_t number) {
    entries[number] = (struct entry){.next_free = first_free};
    first_free = number;
}

/* An unused one, RECORDS_MOST when there is none. */
static uint32_t number_take(void) {
    const uint32_t number = first_free;
    if (number != RECORDS_MOST) {
        first_free = entries[number].next_free;
        return number;
    }
    if (entry_count == RECORDS_MOST) return RECORDS_MOST;
    if (entry_count == entry_room) {
        const uint32_t room = entry_room ? 2 * entry_room : 64;
        struct entry *more = realloc(entries, room * sizeof *more);
        if (!more) return RECORDS_MOST;
        entries = more;
        entry_room = room;
    }
    return entry_count++;
}

static void handle_write(uint32_t number, unsigned char handle[IPC_HANDLE_BYTES]) {
    struct ipc_handle made = {
        .file = file_id, .serial = entries[number].serial, .number = number, .version = IPC_VERSION};
    memcpy(made.magic, IPC_MAGIC, sizeof made.magic);
    made.checksum = ipc_checksum(&made, offsetof(struct ipc_handle, checksum));
    memcpy(handle, &made, sizeof made);
}

static uint64_t add(const struct ipc_export *export, unsigned char handle[IPC_HANDLE_BYTES]) {
    if (!file_ready()) return 0;
    const uint32_t number = number_take();
    if (number == RECORDS_MOST) return 0;
    if (!(next_serial & ((UINT64_C(1) << SERIAL_BITS) - 1))) next_serial++;
    if (!record_write(number, export, next_serial)) {
        record_void(number);
        number_put(number);
        log_line(LOG_WARNING, "IPC: the record of an export cannot be written: %s", strerrordesc_np(errno));
        return 0;
    }
    entries[number] = (struct entry){.serial = next_serial++, .address = export->address, .life = file_life};
    handle_write(number, handle);
    return export_number(number);
}

/* ---- the interface ---- */

uint64_t exports_add(const struct ipc_export *export, unsigned char handle[IPC_HANDLE_BYTES]) {
    struct guard guard;
    enter(&guard);
    const uint64_t added = add(export, handle);
    leave(&guard);
    return added;
}

bool exports_handle(uint64_t export, unsigned char handle[IPC_HANDLE_BYTES]) {
    pthread_mutex_lock(&lock);
    const struct entry *entry = entry_of(export);
    const bool known = entry && entry->life == file_life;
    if (known) handle_write((uint32_t)(entry - entries), handle);
    pthread_mutex_unlock(&lock);
    return known;
}

void exports_noted(uint64_t export) {
    pthread_mutex_lock(&lock);
    struct entry *entry = entry_of(export);
    if (entry) entry->noted = true;
    pthread_mutex_unlock(&lock);
}

/* Void before asked: handle.h says why. */
static bool over(const struct entry *entry) {
    const uint32_t number = (uint32_t)(entry - entries);
    if (entry->life != file_life || !file_is_usable()) return false;
    if (!record_void(number) || ipc_is_locked(file.fd, lock_at(number))) return false;
    number_put(number);
    return true;
}

bool exports_over(uint64_t export) {
    struct guard guard;
    enter(&guard);
    const struct entry *entry = entry_of(export);
    const bool is_over = !entry || over(entry);
    leave(&guard);
    return is_over;
}

void exports_sweep(bool (*known)(void *arg, uint64_t export, uint64_t address), void *arg) {
    struct guard guard;
    enter(&guard);
    for (uint32_t i = 0; i < entry_count; i++) {
        const struct entry *entry = &entries[i];
        if (!entry->serial || !entry->noted || known(arg, export_number(i), entry->address)) continue;
        if (!over(entry) && entry->life != file_life) number_put(i);
    }
    leave(&guard);
}

bool exports_is_own(const struct ipc_handle *handle) {
    pthread_mutex_lock(&lock);
    const bool own = file.fd >= 0 && memcmp(&handle->file, &file_id, sizeof file_id) == 0;
    pthread_mutex_unlock(&lock);
    return own;
}

void exports_finish(void) {
    if (file.fd >= 0) shm_unlink(file_name);
}

void exports_forget_in_child(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    ipc_file_close(&file);
    entry_count = 0;
    first_free = RECORDS_MOST;
}
