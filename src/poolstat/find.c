/* SPDX-License-Identifier: MIT
 *
 * Walks the folders that hold shared memory. Folders that we may not enter belong to others and are passed over.
 */
#include "find.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "memory.h"
#include "poolcuda/stats.h"
#include "procfs.h"

struct search {
    struct found *files;
    size_t file_count, file_capacity;
    struct folder_id {
        dev_t device;
        ino_t inode;
    } * folders; /* already walked */
    size_t folder_count, folder_capacity;
};

/* A decimal number without sign or leading zeros, as the library writes it. */
static bool take_number(const char **at, char after, uint64_t most, uint64_t *number) {
    const char *digit = *at;
    uint64_t value = 0;
    if (*digit == '0' && digit[1] != after) return false;
    for (; *digit >= '0' && *digit <= '9'; digit++)
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (unsigned)(*digit - '0'), &value))
            return false;
    if (digit == *at || *digit != after || value > most) return false;
    *at = after == '\0' ? digit : digit + 1;
    *number = value;
    return true;
}

bool find_parse_name(const char *name, struct found *found) {
    uint64_t uid, pid;
    if (strncmp(name, POOLCUDA_SHM_PREFIX, strlen(POOLCUDA_SHM_PREFIX)) != 0) return false;
    name += strlen(POOLCUDA_SHM_PREFIX);
    if (!take_number(&name, '-', UINT32_MAX, &uid) || !take_number(&name, '-', INT32_MAX, &pid) ||
        !take_number(&name, '\0', UINT64_MAX, &found->start_ticks))
        return false;
    found->uid = (uint32_t)uid;
    found->pid = (uint32_t)pid;
    return pid != 0;
}

static bool is_known_file(const struct search *search, const struct stat *status) {
    for (size_t i = 0; i < search->file_count; i++)
        if (search->files[i].inode == status->st_ino && search->files[i].device == status->st_dev) return true;
    return false;
}

static bool enter_folder(struct search *search, const char *path) {
    struct stat status;
    if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode)) return false;
    for (size_t i = 0; i < search->folder_count; i++)
        if (search->folders[i].inode == status.st_ino && search->folders[i].device == status.st_dev) return false;
    if (search->folder_count == search->folder_capacity) {
        search->folder_capacity = search->folder_capacity ? 2 * search->folder_capacity : 16;
        search->folders = memory_grow(search->folders, search->folder_capacity, sizeof(*search->folders));
    }
    search->folders[search->folder_count++] = (struct folder_id){status.st_dev, status.st_ino};
    return true;
}

static void walk_folder(struct search *search, const char *path) {
    if (!enter_folder(search, path)) return;
    DIR *folder = opendir(path);
    for (const struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        struct found found = {0};
        struct stat status;
        if (!find_parse_name(entry->d_name, &found)) continue;
        if (fstatat(dirfd(folder), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode) ||
            is_known_file(search, &status))
            continue;
        found.path = memory_format("%s/%s", path, entry->d_name);
        found.device = status.st_dev;
        found.inode = status.st_ino;
        found.owner = status.st_uid;
        if (search->file_count == search->file_capacity) {
            search->file_capacity = search->file_capacity ? 2 * search->file_capacity : 16;
            search->files = memory_grow(search->files, search->file_capacity, sizeof(*search->files));
        }
        search->files[search->file_count++] = found;
    }
    if (folder != NULL) closedir(folder);
}

const char *find_folder(void) {
    const char *folder = getenv("POOLSTAT_SHM_DIR");
    return folder == NULL || folder[0] == '\0' ? "/dev/shm" : folder;
}

size_t find_segments(struct found **files) {
    const char *shared_memory = find_folder();
    struct search search = {0};
    walk_folder(&search, shared_memory);
    uint32_t *pids = procfs_pids();
    for (size_t i = 0; shared_memory[0] == '/' && pids[i] != 0; i++) {
        char *path = memory_format("/proc/%u/root%s", pids[i], shared_memory);
        walk_folder(&search, path);
        free(path);
    }
    free(pids);
    free(search.folders);
    *files = search.files;
    return search.file_count;
}

void find_free(struct found *files, size_t count) {
    for (size_t i = 0; i < count; i++) free(files[i].path);
    free(files);
}
