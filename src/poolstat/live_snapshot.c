/* SPDX-License-Identifier: MIT
 *
 * F12: what is shown, as a JSON file. Whatever has its name already stays as it is.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "json.h"
#include "live_view.h"
#include "memory.h"

#define TRIES 1000u /* names of one second */

/* The folder's next free name of this second: "poolstat-20260228-120000.json", "…-2.json". −1: see errno. */
static int create(char **name) {
    const time_t now = time(NULL);
    struct tm local;
    char date[32];
    localtime_r(&now, &local);
    strftime(date, sizeof(date), "%Y%m%d-%H%M%S", &local);
    *name = memory_format("poolstat-%s.json", date);
    for (unsigned i = 2;; i++) {
        const int fd = open(*name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0 || errno != EEXIST || i > TRIES) return fd;
        free(*name);
        *name = memory_format("poolstat-%s-%u.json", date, i);
    }
}

/* As `poolstat show --json` gives it. */
static json_t *opened_document(const struct live_process *process) {
    json_t *document = json_document();
    json_object_set_new(document, "process", json_whole_process(&process->process));
    json_object_set_new(document, "error", json_error(CODE_OK, ""));
    return document;
}

/* As `poolstat --json` gives it, of the processes that the filter leaves. */
static json_t *list_document(const struct live_model *model) {
    json_t *document = json_document(), *processes = json_array(), *problems = json_array();
    for (size_t i = 0; i < model->shown_count; i++) {
        const struct live_process *process = model->shown[i]->process;
        bool is_first = true;
        for (size_t j = 0; j < i; j++) is_first &= model->shown[j]->process != process;
        if (!is_first) continue;
        if (process->process.segment != NULL)
            json_array_append_new(processes, json_listed_process(&process->process));
        else
            json_array_append_new(problems, json_problem(&process->process));
    }
    json_object_set_new(document, "processes", processes);
    json_object_set_new(document, "problems", problems);
    json_object_set_new(
        document, "not_shown",
        json_pack("{s:I,s:I}", "denied", (json_int_t)model->denied, "unseen", (json_int_t)model->unseen));
    json_object_set_new(document, "error", json_error(CODE_OK, ""));
    return document;
}

/* False: see errno. */
static bool write_whole(int fd, json_t *document) {
    FILE *file = fdopen(fd, "w");
    if (file == NULL) {
        close(fd);
        return false;
    }
    bool is_written = json_dumpf(document, file, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0;
    is_written &= fputc('\n', file) != EOF;
    is_written &= fflush(file) == 0 && fsync(fd) == 0;
    const int error = errno;
    if (fclose(file) == 0 && is_written) return true;
    if (!is_written) errno = error;
    return false;
}

void live_snapshot(struct live *live) {
    const struct live_process *opened = live->page == LIVE_ONE ? live_view_opened(live) : NULL;
    const bool is_one = opened != NULL && opened->process.segment != NULL;
    char *name;
    const int fd = create(&name);
    json_t *document = is_one ? opened_document(opened) : list_document(&live->model);
    if (fd < 0) {
        live_say(live, true, "%s could not be created: %s", name, strerror(errno));
    } else if (write_whole(fd, document)) {
        live_say(live, false, "saved as %s", name);
    } else {
        live_say(live, true, "%s could not be written: %s", name, strerror(errno));
        unlink(name); /* ours, and not whole */
    }
    json_decref(document);
    free(name);
}
