/* SPDX-License-Identifier: MIT
 *
 * Finding the library, and LD_PRELOAD.
 */
#include "library.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory.h"

static void note_tried(char *tried, size_t size, const char *path) {
    const size_t used = strlen(tried);
    snprintf(tried + used, size - used, "%s%s", used == 0 ? "" : ", ", path);
}

static char *check(char *path, char *tried, size_t size) {
    char *real = access(path, R_OK) == 0 ? realpath(path, NULL) : NULL;
    if (real == NULL) note_tried(tried, size, path);
    free(path);
    return real;
}

/* Folder of this program, without a slash at its end. */
static char *own_folder(void) {
    char *path = realpath("/proc/self/exe", NULL);
    if (path != NULL) *strrchr(path, '/') = '\0';
    return path;
}

char *library_find(char *tried, size_t size) {
    /* Relative to the program, unless the build knows better: the build tree, then the installed places. */
    static const char *const places[] = {".", "..", POOLSTAT_LIBDIR, "../lib", "../lib64"};
    const char *given = getenv("POOLSTAT_LIBRARY");
    char *folder = own_folder(), *found = NULL;
    tried[0] = '\0';
    if (given != NULL && given[0] != '\0') {
        free(folder);
        return check(memory_copy(given), tried, size);
    }
    for (size_t i = 0; folder != NULL && found == NULL && i < sizeof(places) / sizeof(places[0]); i++)
        found = check(places[i][0] == '/' ? memory_format("%s/" LIBRARY_NAME, places[i])
                                          : memory_format("%s/%s/" LIBRARY_NAME, folder, places[i]),
                      tried, size);
    free(folder);
    return found;
}

static bool list_has(const char *list, const char *path) {
    const size_t length = strlen(path);
    for (const char *at = list; (at = strstr(at, path)) != NULL; at += length)
        if ((at == list || strchr(": ", at[-1]) != NULL) && strchr(": ", at[length]) != NULL) return true;
    return false;
}

/* A sanitizer's runtime insists on being the first library: ours comes after it. Length of its entry, or 0. */
static size_t leading_sanitizer(const char *list) {
    static const char *const names[] = {"libasan.", "libtsan.", "libubsan.", "liblsan.", "libclang_rt."};
    const size_t length = strcspn(list, ": ");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (memmem(list, length, names[i], strlen(names[i])) != NULL) return length;
    return 0;
}

static void add_to_preload(const char *entry) {
    const char *list = getenv("LD_PRELOAD");
    if (list == NULL) list = "";
    list += strspn(list, ": ");
    if (list_has(list, entry)) return;
    const size_t first = leading_sanitizer(list);
    const char *rest = list + first + strspn(list + first, ": ");
    char *joined = memory_format("%.*s%s%s%s%s", (int)first, list, first ? ":" : "", entry, *rest ? ":" : "", rest);
    setenv("LD_PRELOAD", joined, 1);
    free(joined);
}

const char *library_preload(const char *path) {
    if (strpbrk(path, ":;$") != NULL) return "its path holds ':', ';' or '$', which LD_PRELOAD cannot express";
    if (strchr(path, ' ') == NULL) {
        add_to_preload(path);
        return NULL;
    }
    /* Blanks separate the entries of LD_PRELOAD, but not those of LD_LIBRARY_PATH: the bare name, and its folder as the
     * last one there, so that it hides no other library. */
    const char *name = strrchr(path, '/') + 1, *folders = getenv("LD_LIBRARY_PATH");
    const bool has_folders = folders != NULL && folders[0] != '\0';
    if (strchr(name, ' ') != NULL) return "its name holds a blank, which LD_PRELOAD cannot express";
    char *joined =
        memory_format("%s%s%.*s", has_folders ? folders : "", has_folders ? ":" : "", (int)(name - path - 1), path);
    setenv("LD_LIBRARY_PATH", joined, 1);
    free(joined);
    add_to_preload(name);
    return NULL;
}
