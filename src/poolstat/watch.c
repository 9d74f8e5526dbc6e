/* SPDX-License-Identifier: MIT
 *
 * Looks through the folder of segments whenever a file is made there.
 */
#include "watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "find.h"
#include "procfs.h"

void watch_start(struct watch *watch) {
    *watch = (struct watch){.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK)};
    if (watch->fd >= 0 && inotify_add_watch(watch->fd, find_folder(), IN_CREATE | IN_MOVED_TO | IN_ONLYDIR) < 0) {
        close(watch->fd);
        watch->fd = -1;
    }
}

void watch_program(struct watch *watch, pid_t root) {
    struct procfs_process process;
    procfs_read((uint32_t)root, &process);
    watch->root = (uint32_t)root;
    watch->root_start_ticks = process.start_ticks;
}

static bool is_kept(const struct watch *watch, const struct stat *status) {
    for (size_t i = 0; i < watch->count; i++)
        if (watch->kept[i].inode == status->st_ino && watch->kept[i].device == status->st_dev) return true;
    return false;
}

static bool is_ours(const struct watch *watch, const struct found *found) {
    struct procfs_process process;
    if (found->pid == watch->root) return found->start_ticks == watch->root_start_ticks;
    return procfs_read(found->pid, &process) && process.start_ticks == found->start_ticks &&
           procfs_descends(found->pid, watch->root);
}

static void keep(struct watch *watch, int folder, const char *name) {
    struct found found = {0};
    struct stat status;
    if (!find_parse_name(name, &found) || fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(status.st_mode) || is_kept(watch, &status) || !is_ours(watch, &found))
        return;
    if (watch->count == WATCH_MOST) {
        watch->missed++;
        return;
    }
    const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || is_kept(watch, &status)) {
        close(fd);
        return;
    }
    watch->kept[watch->count++] = (struct watched){fd, status.st_dev, status.st_ino, found.pid, status.st_uid};
}

void watch_look(struct watch *watch) {
    char events[4096];
    while (watch->fd >= 0 && read(watch->fd, events, sizeof(events)) > 0) continue; /* only that there were some */
    DIR *folder = opendir(find_folder());
    for (const struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;)
        keep(watch, dirfd(folder), entry->d_name);
    if (folder != NULL) closedir(folder);
}

void watch_end(struct watch *watch) {
    if (watch->fd >= 0) close(watch->fd);
    for (size_t i = 0; i < watch->count; i++) close(watch->kept[i].fd);
}
