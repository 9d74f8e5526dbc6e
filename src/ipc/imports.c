/* SPDX-License-Identifier: MIT
 *
 * The importer's side of handles: records of other processes, and what is open of them.
 */
#include "ipc/imports.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "config/guard.h"

/* One exporter's file: one description, so that its locks are this process's. */
struct exporter {
    struct ipc_file_id id;
    struct ipc_file file;
    unsigned holds; /* of all its records */
    struct exporter *next;
};

/* Locks are not counted by the kernel: a record stays locked until its last hold is given up. */
struct held_record {
    struct ipc_file_id file;
    uint32_t number;
    unsigned holds;
    struct held_record *next;
};

/* One record, opened at one address. */
struct import {
    struct import_info info;
    struct import_hold hold; /* of the first opening; each counts one */
    struct import_life life;
    bool gone;        /* its context is no more */
    unsigned opened;  /* times */
    unsigned closing; /* calls that are in the driver to close it */
    struct import *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static struct exporter *exporters;
static struct held_record *held_records;
static struct import *imports;
static _Atomic unsigned import_count; /* read without the lock */
static uint64_t next_id;

/* No signal, no cancellation and no errno of these calls reaches the program. */
static void enter(struct guard *guard) {
    guard_enter(guard);
    pthread_mutex_lock(&lock);
}

static void leave(const struct guard *guard) {
    pthread_mutex_unlock(&lock);
    guard_leave(guard);
}

static bool same_file(struct ipc_file_id one, struct ipc_file_id other) {
    return memcmp(&one, &other, sizeof one) == 0;
}

static off_t lock_at(uint32_t number) {
    return 1 + (off_t)number;
}

/* ---- holds ---- */

static struct exporter *exporter_open(struct ipc_file_id id, const char **why) {
    for (struct exporter *known = exporters; known; known = known->next)
        if (same_file(known->id, id)) return known;
    char name[IPC_NAME_BYTES];
    struct ipc_file file;
    ipc_file_name(name, geteuid(), id);
    const int fd = shm_open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0);
    if (fd < 0 || !ipc_file_keep(fd, &file)) {
        *why = "its process has ended, is another user's, or shares no /dev/shm with this one";
        return NULL;
    }
    struct exporter *exporter = malloc(sizeof *exporter);
    if (!exporter) {
        *why = "host memory ran out";
        ipc_file_close(&file);
        return NULL;
    }
    *exporter = (struct exporter){.id = id, .file = file, .next = exporters};
    return exporters = exporter;
}

/* Without holds it goes. */
static void exporter_close(struct exporter *exporter) {
    if (exporter->holds) return;
    struct exporter **at = &exporters;
    while (*at != exporter) at = &(*at)->next;
    *at = exporter->next;
    ipc_file_close(&exporter->file);
    free(exporter);
}

static struct held_record **held_find(struct ipc_file_id file, uint32_t number) {
    struct held_record **at = &held_records;
    while (*at && !(same_file((*at)->file, file) && (*at)->number == number)) at = &(*at)->next;
    return at;
}

static bool hold_record(const struct exporter *exporter, uint32_t number) {
    struct held_record *held = *held_find(exporter->id, number);
    if (!held) {
        held = malloc(sizeof *held);
        if (!held) return false;
        if (!ipc_lock(exporter->file.fd, lock_at(number), false)) {
            free(held);
            return false;
        }
        *held = (struct held_record){exporter->id, number, 0, held_records};
        held_records = held;
    }
    held->holds++;
    return true;
}

static void give_up(const struct import_hold *hold) {
    struct held_record **at = held_find(hold->file, hold->number);
    struct held_record *held = *at;
    struct exporter *exporter = exporters;
    while (exporter && !same_file(exporter->id, hold->file)) exporter = exporter->next;
    if (!held || !exporter) return;
    if (--held->holds == 0) {
        if (ipc_file_is_there(&exporter->file)) ipc_unlock(exporter->file.fd, lock_at(hold->number));
        *at = held->next;
        free(held);
    }
    exporter->holds--;
    exporter_close(exporter);
}

static bool record_read(int fd, const struct ipc_handle *handle, struct ipc_record *record) {
    ssize_t bytes;
    do bytes = pread(fd, record, sizeof *record, (off_t)handle->number * IPC_RECORD_BYTES);
    while (bytes < 0 && errno == EINTR);
    return bytes == (ssize_t)sizeof *record && record->serial == handle->serial &&
           record->checksum == ipc_checksum(record, offsetof(struct ipc_record, checksum));
}

static bool take_hold(const struct ipc_handle *handle, struct import_hold *hold, const char **why) {
    struct exporter *exporter = exporter_open(handle->file, why);
    if (!exporter) return false;
    /* An exporter that was killed may have left its file. */
    if (!ipc_file_is_there(&exporter->file) || !ipc_is_locked(exporter->file.fd, 0) ||
        !hold_record(exporter, handle->number)) {
        *why = "its process has ended";
        exporter_close(exporter);
        return false;
    }
    exporter->holds++;
    *hold = (struct import_hold){.file = handle->file, .number = handle->number};
    struct ipc_record record;
    if (!record_read(exporter->file.fd, handle, &record)) {
        *why = "the memory was freed";
        give_up(hold);
        return false;
    }
    hold->offset = record.offset;
    hold->requested = record.requested;
    memcpy(hold->driver_handle, record.driver_handle, sizeof hold->driver_handle);
    return true;
}

bool imports_hold(const struct ipc_handle *handle, struct import_hold *hold, const char **why) {
    struct guard guard;
    enter(&guard);
    const bool held = take_hold(handle, hold, why);
    leave(&guard);
    return held;
}

void imports_give_up(const struct import_hold *hold) {
    struct guard guard;
    enter(&guard);
    give_up(hold);
    leave(&guard);
}

/* ---- what is open ---- */

/* Of a context that nobody had told of when it was opened, the number is not known. */
static bool is_in(const struct import *import, struct import_life life) {
    return import->life.context == life.context && (import->life.serial == life.serial || !import->life.serial);
}

static bool is_of(const struct import *import, const struct import_hold *hold, uint64_t base, struct import_life life) {
    return import->hold.number == hold->number && same_file(import->hold.file, hold->file) &&
           import->info.base == base && import->life.context == life.context && import->life.serial == life.serial;
}

bool imports_opened(const struct import_hold *hold, uint64_t base, struct import_life life) {
    struct guard guard;
    enter(&guard);
    struct import *import = imports;
    while (import && !is_of(import, hold, base, life)) import = import->next;
    if (!import && (import = malloc(sizeof *import))) {
        *import = (struct import){.info = {base + hold->offset, hold->requested, base, ++next_id},
                                  .hold = *hold,
                                  .life = life,
                                  .next = imports};
        imports = import;
        atomic_fetch_add(&import_count, 1);
    }
    if (import) import->opened++;
    leave(&guard);
    return import != NULL;
}

/* Of an import that is open no more. */
static void import_free(struct import **at) {
    struct import *import = *at;
    *at = import->next;
    free(import);
    atomic_fetch_sub(&import_count, 1);
}

/* An address that the driver has closed may be given to another opening before imports_close_ended: only what is open
 * counts. */
bool imports_close(uint64_t address, struct import_info *info) {
    if (atomic_load(&import_count) == 0) return false;
    pthread_mutex_lock(&lock);
    struct import *import = imports;
    while (import && (import->info.address != address || !import->opened)) import = import->next;
    if (import) {
        import->opened--;
        import->closing++;
        *info = import->info;
    }
    pthread_mutex_unlock(&lock);
    return import != NULL;
}

void imports_close_ended(const struct import_info *info, bool closed) {
    struct guard guard;
    enter(&guard);
    struct import **at = &imports;
    while (*at && (*at)->info.id != info->id) at = &(*at)->next;
    struct import *import = *at;
    if (import) {
        import->closing--;
        if (closed || import->gone)
            give_up(&import->hold);
        else
            import->opened++;
        if (import->opened + import->closing == 0) import_free(at);
    }
    leave(&guard);
}

bool imports_find(uint64_t address, struct import_info *info) {
    if (__builtin_expect(atomic_load_explicit(&import_count, memory_order_relaxed) == 0, 1)) return false;
    pthread_mutex_lock(&lock);
    const struct import *import = imports;
    while (import && (!import->opened || address - import->info.address >= import->info.requested))
        import = import->next;
    if (import) *info = import->info;
    pthread_mutex_unlock(&lock);
    return import != NULL;
}

void imports_context_gone(struct import_life life) {
    if (atomic_load(&import_count) == 0) return;
    struct guard guard;
    enter(&guard);
    for (struct import **at = &imports; *at;) {
        struct import *import = *at;
        if (!is_in(import, life)) {
            at = &import->next;
            continue;
        }
        for (; import->opened > 0; import->opened--) give_up(&import->hold);
        import->gone = true;
        if (import->closing)
            at = &import->next;
        else
            import_free(at);
    }
    leave(&guard);
}

/* The holds stay the parent's, whose descriptions these were. */
void imports_forget_in_child(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    for (struct exporter *exporter = exporters; exporter; exporter = exporter->next) ipc_file_close(&exporter->file);
    exporters = NULL;
    held_records = NULL;
    imports = NULL;
    atomic_store(&import_count, 0);
}
