/* SPDX-License-Identifier: MIT
 *
 * `poolstat doctor`: why a program is or is not pooled, and what to do. Looks at a process, at an executable before it
 * is started, or at the machine; changes nothing.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collect.h"
#include "commands.h"
#include "diagnosis.h"
#include "grid.h"
#include "json.h"
#include "memory.h"
#include "report.h"
#include "text.h"

static const char *const severities[] = {
    [SEVERITY_OK] = "ok", [SEVERITY_NOTE] = "note", [SEVERITY_PROBLEM] = "problem"};

static const struct {
    const char *word, *sentence;
} verdicts[] = {
    [VERDICT_POOLED] = {"pooled", "is pooled"},
    [VERDICT_NOT_POOLED] = {"not_pooled", "is not pooled"},
    [VERDICT_NOT_YET] = {"not_yet", "has the library, but nothing came to the pool yet"},
    [VERDICT_UNKNOWN] = {"unknown", "has the library; whether calls come to the pool is not known"},
    [VERDICT_READY] = {"ready", "is ready: what is started with poolstat run is pooled"},
    [VERDICT_NOT_READY] = {"not_ready", "is not ready to be pooled"},
};

/* What was looked at. */
struct subject {
    const char *kind; /* process, machine, command */
    uint32_t pid;     /* of a process */
    const char *name; /* of a process or command, may be NULL */
};

static json_t *findings_of(const struct diagnosis *diagnosis) {
    json_t *list = json_array();
    for (size_t i = 0; i < diagnosis->count; i++) {
        const struct finding *finding = &diagnosis->findings[i];
        json_t *object = json_object();
        json_object_set_new(object, "id", json_string(finding->id));
        json_object_set_new(object, "severity", json_string(severities[finding->severity]));
        json_object_set_new(object, "what", json_string(finding->what));
        json_object_set_new(object, "advice", finding->advice == NULL ? json_null() : json_string(finding->advice));
        json_array_append_new(list, object);
    }
    return list;
}

static void print_json(const struct subject *subject, const struct diagnosis *diagnosis) {
    json_t *document = json_document(), *object = json_object();
    json_object_set_new(object, "subject", json_string(subject->kind));
    json_object_set_new(object, "pid", subject->pid == 0 ? json_null() : json_integer(subject->pid));
    json_object_set_new(object, "command",
                        subject->name == NULL ? json_null() : json_safe_string(subject->name, strlen(subject->name)));
    json_object_set_new(object, "verdict", json_string(verdicts[diagnosis->verdict].word));
    json_object_set_new(object, "findings", findings_of(diagnosis));
    json_object_set_new(document, "doctor", object);
    json_object_set_new(document, "error", json_error(CODE_OK, ""));
    json_print(document);
}

/* Words of `text` in lines of at most `width` columns, `indent` blanks before each but the first. */
static void print_wrapped(const char *text, size_t indent, size_t width) {
    size_t column = indent;
    while (*text != '\0') {
        char *word = memory_format("%.*s", (int)strcspn(text, " "), text);
        const size_t columns = text_width(word);
        if (column > indent && width != 0 && column + 1 + columns > width) {
            printf("\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            putchar(' ');
            column++;
        }
        fputs(word, stdout);
        column += columns;
        text += strlen(word);
        text += strspn(text, " ");
        free(word);
    }
    putchar('\n');
}

static void print_text(const struct options *options, const struct subject *subject,
                       const struct diagnosis *diagnosis) {
    enum { INDENT = 10 };
    char *name = subject->name == NULL ? NULL : text_safe(subject->name, strlen(subject->name));
    if (subject->pid != 0)
        printf("Process %u (%s) ", subject->pid, name == NULL ? "-" : name);
    else
        printf("%s ", name == NULL ? "This machine" : name);
    printf("%s.\n", verdicts[diagnosis->verdict].sentence);
    free(name);
    for (size_t i = 0; i < diagnosis->count; i++) {
        const struct finding *finding = &diagnosis->findings[i];
        printf("%-*s", INDENT, severities[finding->severity]);
        print_wrapped(finding->what, INDENT, options->width);
        if (finding->advice == NULL) continue;
        printf("%*s", INDENT, "");
        print_wrapped(finding->advice, INDENT, options->width);
    }
}

static int conclude(const struct options *options, const struct subject *subject, struct diagnosis *diagnosis) {
    const int code = diagnosis_has_problem(diagnosis) ? CODE_NONE : CODE_OK;
    if (options->json)
        print_json(subject, diagnosis);
    else
        print_text(options, subject, diagnosis);
    diagnosis_free(diagnosis);
    return code;
}

/* ---- subjects ---- */

/* The process as we see it, else the only one with figures whose pid in its container it is. 0: none. */
static uint32_t resolve(const struct collection *collection, uint32_t pid) {
    struct procfs_process process;
    uint32_t found = 0;
    if (procfs_read(pid, &process)) return pid;
    for (size_t i = 0; i < collection->count; i++) {
        const struct process *candidate = &collection->processes[i];
        if (candidate->liveness != LIVENESS_ALIVE || candidate->inner_pid != pid) continue;
        if (found != 0) return 0;
        found = candidate->pid;
    }
    return found;
}

static const struct process *figures_of(const struct collection *collection, uint32_t pid) {
    for (size_t i = 0; i < collection->count; i++)
        if (collection->processes[i].liveness == LIVENESS_ALIVE && collection->processes[i].pid == pid)
            return &collection->processes[i];
    return NULL;
}

static int examine_process(const struct options *options, const struct collection *collection, uint32_t wanted) {
    struct diagnosis diagnosis = {0};
    struct evidence evidence;
    const uint32_t pid = resolve(collection, wanted);
    int code;
    if (pid == 0 || !evidence_gather(&evidence, pid))
        return report(options, CODE_GONE, "there is no process %u (any more)", wanted);
    if (!evidence.permitted) {
        code = report(options, CODE_DENIED,
                      "process %u belongs to another user or runs with raised privileges: run poolstat as root", pid);
    } else {
        const struct subject subject = {"process", pid, evidence.command};
        doctor_process(&diagnosis, &evidence, figures_of(collection, pid));
        code = conclude(options, &subject, &diagnosis);
    }
    evidence_free(&evidence);
    return code;
}

static int examine_machine(const struct options *options, const struct collection *collection) {
    struct diagnosis diagnosis = {0};
    doctor_machine(&diagnosis, collection);
    return conclude(options, &(struct subject){.kind = "machine"}, &diagnosis);
}

static int examine_command(const struct options *options, const char *command) {
    struct diagnosis diagnosis = {0};
    doctor_command(&diagnosis, command);
    return conclude(options, &(struct subject){.kind = "command", .name = command}, &diagnosis);
}

static bool parse_pid(const char *text, uint32_t *pid) {
    if (text[0] == '\0' || strspn(text, "0123456789") != strlen(text)) return false;
    errno = 0;
    const unsigned long value = strtoul(text, NULL, 10);
    *pid = errno != 0 || value > INT32_MAX ? 0 : (uint32_t)value; /* 0: nobody's */
    return true;
}

int command_doctor(const struct options *options, int argc, char **argv) {
    struct collection collection;
    uint32_t pid;
    int code;
    if (argc > 1 && !parse_pid(argv[1], &pid)) return examine_command(options, argv[1]);
    if (argc > 2) return report(options, CODE_USAGE, "doctor takes one process id, or a command; see: poolstat --help");
    collect(&collection, false);
    code = argc > 1 ? examine_process(options, &collection, pid) : examine_machine(options, &collection);
    collect_free(&collection);
    return code;
}
