/* SPDX-License-Identifier: MIT
 *
 * Fuzz target over the reader: each input is the file of a process's figures. It is read and checked, and every command
 * that reads figures answers from it, in each form. Whatever the input, nothing may crash, hang or be undefined.
 *
 * Commands get their process from __wrap_collect below (linked with --wrap=collect), clocks and pauses are those of
 * this file, so that a segment that is for ever being written costs no time.
 */
#include "fuzz.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "poolstat/collect.h"
#include "poolstat/commands.h"
#include "poolstat/diagnosis.h"
#include "poolstat/json.h"
#include "poolstat/memory.h"
#include "poolstat/text.h"

void __wrap_collect(struct collection *collection, bool ended_too);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);

#define PID 4711u

static int input;

/* Past every deadline of the reader at the second look. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *now) {
    static long milliseconds;
    (void)clock;
    milliseconds += 2;
    *now = (struct timespec){.tv_sec = 1000000 + milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000};
    return 0;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left) {
    (void)time;
    (void)left;
    return 0;
}

void __wrap_collect(struct collection *collection, bool ended_too) {
    (void)ended_too;
    struct process *process = memory_new(1, sizeof(*process));
    *process = (struct process){.file = {.path = memory_copy("/dev/shm/poolcuda-0-4711-1"), .pid = PID},
                                .pid = PID,
                                .inner_pid = PID,
                                .liveness = LIVENESS_ALIVE};
    process->code = segment_read(input, &process->segment, process->why) == SEGMENT_READ ? CODE_OK : CODE_DAMAGED;
    *collection = (struct collection){.processes = process, .count = 1};
}

static void answer(const char *name, const struct options *options) {
    char *arguments[] = {(char *)name, "4711", NULL};
    const struct command *command = commands_find(name);
    if (command == NULL) abort();
    const int count = command->most == 0 ? 1 : 2;
    if (count == 1) arguments[1] = NULL;
    const int code = command->function(options, count, arguments);
    if (code != CODE_OK && code != CODE_NONE && code != CODE_DAMAGED && code != CODE_GONE) abort();
}

/* No figure is negative, and none is no number. */
static void check_numbers(const json_t *value) {
    const char *key;
    json_t *item;
    size_t i;
    if (json_is_number(value) && !(json_number_value(value) >= 0)) abort();
    if (json_is_object(value)) json_object_foreach((json_t *)value, key, item) check_numbers(item);
    if (json_is_array(value)) json_array_foreach(value, i, item) check_numbers(item);
}

static void check_figures(const struct process *process) {
    json_t *const documents[] = {json_whole_process(process), json_listed_process(process)};
    for (size_t i = 0; i < sizeof(documents) / sizeof(documents[0]); i++) {
        check_numbers(documents[i]);
        json_decref(documents[i]);
    }
}

static void diagnose_figures(const struct process *process) {
    struct diagnosis diagnosis = {0};
    doctor_figures(&diagnosis, process);
    diagnosis_free(&diagnosis);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    text_start();
    fuzz_quieten();
    input = fuzz_file();
    return 0;
}

/* Every command in every form would take too long for each input: which one it is hangs on the input. */
static void answer_once(size_t turn) {
    static const struct {
        const char *command;
        struct options options;
    } turns[] = {
        {"show", {.json = true}}, {"show", {.width = 80, .coloured = true}}, {"show", {.width = 0, .bytes = true}},
        {"ls", {.json = true}},   {"ls", {.csv = true, .bytes = true}},      {"ls", {.width = 40, .coloured = true}},
    };
    turn %= sizeof(turns) / sizeof(turns[0]);
    answer(turns[turn].command, &turns[turn].options);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct collection collection;
    size_t sum = size;
    for (size_t i = 0; i < size; i++) sum = sum * 31 + data[i];
    fuzz_fill(input, data, size);
    __wrap_collect(&collection, false);
    if (collection.processes[0].segment != NULL) {
        check_figures(&collection.processes[0]);
        diagnose_figures(&collection.processes[0]);
    }
    collect_free(&collection);
    answer_once(sum);
    return 0;
}
