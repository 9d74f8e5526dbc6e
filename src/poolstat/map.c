/* SPDX-License-Identifier: MIT
 *
 * `poolstat map`: the device memory of a process's pools as a picture, in text, as JSON or as an SVG file.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "json.h"
#include "map_json.h"
#include "map_model.h"
#include "map_svg.h"
#include "map_text.h"
#include "memory.h"
#include "one.h"
#include "report.h"
#include "text.h"
#include "words.h"

static void print_json(const struct process *process, const struct map *maps, size_t count) {
    json_t *document = json_document();
    json_object_set_new(document, "map", map_json(process, maps, count));
    json_object_set_new(document, "error", json_error(CODE_OK, ""));
    json_print(document);
}

static void print_text(const struct options *options, const struct process *process, const struct map *maps,
                       size_t count) {
    const struct poolcuda_header *header = &process->segment->header;
    char *command = text_safe(header->command, sizeof(header->command));
    if (options->timestamps) puts(words_time(process->read_unix_ns).s);
    printf("%s, process %u\n", command, process->pid == 0 ? process->inner_pid : process->pid);
    free(command);
    for (size_t i = 0; i < count; i++) map_text_print(options, &maps[i]);
    if (count == 0)
        puts("no pool yet");
    else
        map_text_legend(options);
}

static int print_maps(const struct options *options, const struct process *process, const struct map *maps,
                      size_t count) {
    if (options->svg != NULL) {
        char *error = map_svg_save(options->svg, process, maps, count, options->classes);
        if (error != NULL) {
            const int code = report(options, CODE_FAILED, "%s", error);
            free(error);
            return code;
        }
    }
    if (options->json)
        print_json(process, maps, count);
    else if (options->svg == NULL)
        print_text(options, process, maps, count);
    return CODE_OK;
}

static int map_process(const struct options *options, const struct process *process, void *unused) {
    const struct segment *segment = process->segment;
    const uint32_t pid = process->pid == 0 ? process->inner_pid : process->pid;
    (void)unused;
    if (segment->header.map.count == 0)
        return report(options, CODE_NONE, "process %u has no block map: its library is of a release without it", pid);
    struct map *maps = memory_new(segment->pool_count, sizeof(*maps));
    size_t count = 0;
    for (size_t i = 0; i < segment->pool_count; i++)
        if (options->pool == 0 || segment->pools[i].number == options->pool)
            map_make(segment, &segment->pools[i], &maps[count++]);
    const int code = options->pool != 0 && count == 0
                         ? report(options, CODE_NONE, "process %u has no pool %u; its pools: poolstat show %u", pid,
                                  options->pool, pid)
                         : print_maps(options, process, maps, count);
    for (size_t i = 0; i < count; i++) map_free(&maps[i]);
    free(maps);
    return code;
}

int command_map(const struct options *options, int argc, char **argv) {
    if (options->json && options->svg != NULL && strcmp(options->svg, "-") == 0)
        return report(options, CODE_USAGE, "--svg - and --json both want to write to the standard output");
    return one_repeat(options, argc, argv, map_process, NULL);
}
