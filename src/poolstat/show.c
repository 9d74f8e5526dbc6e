/* SPDX-License-Identifier: MIT
 *
 * `poolstat show`: prints everything about a process. The sections are in sections.c.
 */
#include <stdio.h>

#include "commands.h"
#include "json.h"
#include "one.h"
#include "sections.h"
#include "words.h"

static int show(const struct options *options, const struct process *process, void *unused) {
    (void)unused;
    if (!options->json) {
        if (options->timestamps) puts(words_time(process->read_unix_ns).s);
        sections_print(options, process);
        return CODE_OK;
    }
    json_t *document = json_document();
    json_object_set_new(document, "process", json_whole_process(process));
    json_object_set_new(document, "error", json_error(CODE_OK, ""));
    json_print(document);
    return CODE_OK;
}

int command_show(const struct options *options, int argc, char **argv) {
    return one_repeat(options, argc, argv, show, NULL);
}
