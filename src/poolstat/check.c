/* SPDX-License-Identifier: MIT
 *
 * `poolstat check CONDITION`: for scripts, does it hold of every process that was chosen? Each is looked at as the sum
 * of its pools, or of those on one device.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "choose.h"
#include "columns.h"
#include "commands.h"
#include "expression.h"
#include "json.h"
#include "memory.h"
#include "report.h"
#include "text.h"
#include "words.h"

/* The condition, and the answers about the processes so far. */
struct checking {
    const struct options *options;
    const char *text;
    struct expression *expression;
    const struct column **columns; /* that it names */
    size_t column_count;
    size_t looked_at;
    enum code code;
    char message[512]; /* of the first error */
    json_t *checks;
};

static uint32_t shown_pid(const struct process *process) {
    return words_pid(process) != 0 ? words_pid(process) : process->inner_pid;
}

/* An error is more than a condition that does not hold, and the first of several counts. */
static void note(struct checking *checking, enum code code, const char *message) {
    if (checking->code != CODE_OK && (checking->code != CODE_NONE || code == CODE_NONE)) return;
    checking->code = code;
    snprintf(checking->message, sizeof(checking->message), "%s", message);
}

static char *values_as_text(const struct checking *checking, const struct row *row) {
    char *text = memory_copy("");
    for (size_t i = 0; i < checking->column_count; i++) {
        struct value value = column_value(checking->columns[i], row);
        char *shown = value_text(&value);
        char *longer = memory_format("%s%s%s %s", text, i == 0 ? "" : ", ", checking->columns[i]->name, shown);
        free(text);
        free(shown);
        value_free(&value);
        text = longer;
    }
    return text;
}

static json_t *values_as_json(const struct checking *checking, const struct row *row) {
    json_t *values = json_object();
    for (size_t i = 0; i < checking->column_count; i++) {
        struct value value = column_value(checking->columns[i], row);
        json_object_set_new(values, checking->columns[i]->name, json_value(&value));
        value_free(&value);
    }
    return values;
}

/* Which figures are not known, as a list of names. */
static char *unknown_names(const struct checking *checking, const struct row *row) {
    char *names = memory_copy("");
    for (size_t i = 0; i < checking->column_count; i++) {
        struct value value = column_value(checking->columns[i], row);
        if (!value.known) {
            char *longer = memory_format("%s%s%s", names, names[0] == '\0' ? "" : ", ", checking->columns[i]->name);
            free(names);
            names = longer;
        }
        value_free(&value);
    }
    return names;
}

static void say(struct checking *checking, const struct row *row, enum verdict verdict) {
    static const char *const words[] = {
        [VERDICT_FAILS] = "does not hold", [VERDICT_HOLDS] = "holds", [VERDICT_UNKNOWN] = "is not known"};
    const struct process *process = row->process;
    const struct poolcuda_header *header = &process->segment->header;
    if (checking->options->json) {
        json_t *answer = json_pack(
            "{s:o,s:I,s:o,s:o,s:o,s:o}", "pid",
            words_pid(process) == 0 ? json_null() : json_integer(words_pid(process)), "namespace_pid",
            (json_int_t)process->inner_pid, "command", json_safe_string(header->command, sizeof(header->command)),
            "holds", verdict == VERDICT_UNKNOWN ? json_null() : json_boolean(verdict == VERDICT_HOLDS), "approximate",
            json_boolean(row->device->approximate), "values", values_as_json(checking, row));
        json_array_append_new(checking->checks, answer);
        return;
    }
    char *command = text_safe(header->command, sizeof(header->command)), *values = values_as_text(checking, row);
    printf("%u %s: %s (%s)%s\n", shown_pid(process), command, words[verdict], values,
           row->device->approximate ? ", approximate" : "");
    free(command);
    free(values);
}

static void check_process(struct checking *checking, const struct process *process) {
    struct device_sum *sums, total;
    const size_t count = derive_devices(process->segment, &sums);
    const struct row row = {process, &total};
    derive_total(sums, count, &total);
    const enum verdict verdict = expression_evaluate(checking->expression, &row);
    say(checking, &row, verdict);
    if (verdict == VERDICT_FAILS) note(checking, CODE_NONE, "");
    if (verdict == VERDICT_UNKNOWN) {
        char *names = unknown_names(checking, &row);
        char *message = memory_format("process %u: not known: %s", shown_pid(process), names);
        note(checking, CODE_UNKNOWN, message);
        free(message);
        free(names);
    }
    free(sums);
}

static void look_at(struct checking *checking, const struct process *process) {
    const bool has_ended = process->liveness == LIVENESS_ENDED;
    if (has_ended && (!checking->options->choice.all || process->code != CODE_OK)) return;
    checking->looked_at++;
    if (process->code == CODE_OK) {
        check_process(checking, process);
        return;
    }
    char *message = memory_format("process %u: the segment %s", shown_pid(process), process->why);
    note(checking, process->code, message);
    free(message);
}

static int conclude(struct checking *checking) {
    const bool is_error = checking->code != CODE_OK && checking->code != CODE_NONE;
    if (checking->options->json) {
        json_t *document = json_document();
        json_object_set_new(document, "condition", json_safe_string(checking->text, strlen(checking->text)));
        json_object_set_new(document, "holds", is_error ? json_null() : json_boolean(checking->code == CODE_OK));
        json_object_set_new(document, "checks", checking->checks);
        json_object_set_new(document, "error", json_error(is_error ? checking->code : CODE_OK, checking->message));
        json_print(document);
    }
    fflush(stdout);
    if (is_error) report_note("%s", checking->message);
    return checking->code;
}

/* Shows the place below the condition. */
static int report_wrong(const struct options *options, const char *text, const char *why, size_t at) {
    char *safe = text_safe(text, strlen(text)), *before = text_safe(text, at);
    const int code = report(options, CODE_USAGE, "%s (character %zu of the condition)", why, at + 1);
    fprintf(stderr, "  %s\n  %*s^\n", safe, (int)text_width(before), "");
    free(safe);
    free(before);
    return code;
}

int command_check(const struct options *options, int argc, char **argv) {
    struct checking checking = {.options = options, .text = argv[1]};
    struct collection collection;
    char why[512];
    size_t at;
    (void)argc;
    checking.expression = expression_parse(argv[1], why, sizeof(why), &at);
    if (checking.expression == NULL) return report_wrong(options, argv[1], why, at);
    checking.column_count = expression_columns(checking.expression, &checking.columns);
    if (options->json) checking.checks = json_array();
    choose_collect(&options->choice, &collection);
    for (size_t i = 0; i < collection.count; i++) look_at(&checking, &collection.processes[i]);
    if (checking.looked_at == 0) note(&checking, CODE_GONE, "no process on the pool is one of those chosen");
    const int code = conclude(&checking);
    collect_free(&collection);
    free(checking.columns);
    expression_free(checking.expression);
    return code;
}
