/* SPDX-License-Identifier: MIT
 *
 * Reads the POOL_* variables by the table of config.h. Works on the stack and in static memory only.
 */
#include "config/config.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "config/fixed.h"
#include "config/guard.h"

enum kind { KIND_FLAG, KIND_SIZE_MB, KIND_LEVEL, KIND_WORD, KIND_PATH, KIND_FIXED };

struct row {
    enum kind kind;
    size_t field; /* offset in struct config */
    uint64_t standard, low, high;
};

/* What the default is called in the variable's own terms. Words and paths have no number to print. */
#define DEFAULT_TEXT_FLAG(name, standard) #standard
#define DEFAULT_TEXT_LEVEL(name, standard) #standard
#define DEFAULT_TEXT_SIZE_MB(name, standard) \
    ((standard) == CONFIG_NONE ? "none" : (standard) == CONFIG_AUTO ? "auto" : #standard)
#define DEFAULT_TEXT_WORD(name, standard) DEFAULT_OF_##name
#define DEFAULT_TEXT_PATH(name, standard) DEFAULT_OF_##name
#define DEFAULT_TEXT_FIXED(name, standard) "none"
#define DEFAULT_OF_POOL_FREE "sync"
#define DEFAULT_OF_POOL_FILL "none"
#define DEFAULT_OF_POOL_LOG_FILE "stderr"
#define DEFAULT_OF_POOL_TRACE "none"

#define ROW(name, field, kind, standard, low, high, range, help) \
    {KIND_##kind, offsetof(struct config, field), (standard), (low), (high)},
static const struct row rows[] = {CONFIG_VARIABLES(ROW)};

#define VARIABLE(name, field, kind, standard, low, high, range, help) \
    {#name, DEFAULT_TEXT_##kind(name, standard), range, help},
static const struct config_variable variables[] = {CONFIG_VARIABLES(VARIABLE)};

enum { COUNT = sizeof(rows) / sizeof(rows[0]) };
_Static_assert(COUNT <= 32, "from_environment holds a bit for each variable");

/* ---- text without allocation ---- */

enum { LINE_MAX_BYTES = 512, SHOWN_MAX = 48 };

struct line {
    char text[LINE_MAX_BYTES];
    size_t length;
};

static void line_add(struct line *line, const char *text) {
    while (*text != '\0' && line->length + 1 < sizeof line->text) line->text[line->length++] = *text++;
    line->text[line->length] = '\0';
}

/* Foreign text: shortened, and with every byte escaped that a terminal might obey. */
static void line_add_foreign(struct line *line, const char *text, size_t length) {
    for (size_t i = 0; i < length && i < SHOWN_MAX; i++) {
        const unsigned char byte = (unsigned char)text[i];
        char piece[8] = {text[i], '\0'};
        if (byte < 0x20 || byte > 0x7e || byte == '\\') snprintf(piece, sizeof piece, "\\x%02x", byte);
        line_add(line, piece);
    }
    if (length > SHOWN_MAX) line_add(line, "...");
}

/* A value. Where a blank would not be seen, or nothing is there, in quotation marks. */
static void line_add_value(struct line *line, const char *text, size_t length) {
    const char *mark = length == 0 || memchr(text, ' ', length) != NULL ? "'" : "";
    line_add(line, mark);
    line_add_foreign(line, text, length);
    line_add(line, mark);
}

/* ---- values ---- */

/* Decimal digits and nothing else. */
static bool parse_number(const char *text, uint64_t *out) {
    uint64_t value = 0;
    if (*text == '\0') return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9') return false;
        if (__builtin_mul_overflow(value, 10u, &value)) return false;
        if (__builtin_add_overflow(value, (uint64_t)(*text - '0'), &value)) return false;
    }
    *out = value;
    return true;
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || c == '-';
}

/* The next word of a range text that is a value ("none, or 1 to 8": none), NULL at the first other thing. */
static const char *range_word(const char **rest, size_t *length) {
    for (;;) {
        const char *at = *rest;
        while (*at == ' ' || *at == ',') at++;
        const char *end = at;
        while (is_letter(*end)) end++;
        *length = (size_t)(end - at);
        *rest = end;
        if (*length == 0) return NULL;
        if (*length != 2 || memcmp(at, "or", 2) != 0) return at;
    }
}

static bool range_has_word(const char *range, const char *word, uint64_t *index) {
    size_t length;
    *index = 0;
    for (const char *at; (at = range_word(&range, &length)) != NULL; (*index)++) {
        if (strlen(word) == length && memcmp(at, word, length) == 0) return true;
    }
    return false;
}

static bool parse_size(const struct row *row, const char *range, const char *text, uint64_t *out) {
    uint64_t number;
    if (range_has_word(range, text, &number)) {
        *out = strcmp(text, "none") == 0 ? CONFIG_NONE : CONFIG_AUTO;
        return true;
    }
    if (!parse_number(text, &number) || number < row->low || number > row->high) return false;
    *out = number << 20;
    return true;
}

static void *field_of(struct config *config, const struct row *row) {
    return (char *)config + row->field;
}

static const void *field_in(const struct config *config, const struct row *row) {
    return (const char *)config + row->field;
}

static void set_default(struct config *config, const struct row *row) {
    void *field = field_of(config, row);
    const bool word = row->standard == CONFIG_NONE || row->standard == CONFIG_AUTO;
    switch (row->kind) {
    case KIND_FLAG:
        *(bool *)field = row->standard != 0;
        break;
    case KIND_SIZE_MB:
        *(uint64_t *)field = word ? row->standard : row->standard << 20;
        break;
    case KIND_LEVEL:
    case KIND_WORD:
        *(int *)field = (int)row->standard;
        break;
    case KIND_PATH:
        *(const char **)field = NULL;
        break;
    case KIND_FIXED:
        *(struct config_fixed *)field = (struct config_fixed){0};
        break;
    }
}

static bool set_from_text(struct config *config, size_t index, const char *text) {
    const struct row *row = &rows[index];
    void *field = field_of(config, row);
    uint64_t number;
    switch (row->kind) {
    case KIND_FLAG:
    case KIND_LEVEL:
        if (!parse_number(text, &number) || number < row->low || number > row->high) return false;
        if (row->kind == KIND_FLAG)
            *(bool *)field = number != 0;
        else
            *(int *)field = (int)number;
        return true;
    case KIND_SIZE_MB:
        return parse_size(row, variables[index].range, text, field);
    case KIND_WORD:
        if (!range_has_word(variables[index].range, text, &number)) return false;
        *(int *)field = (int)number;
        return true;
    case KIND_PATH:
        if (*text == '\0' || strlen(text) >= PATH_MAX) return false;
        *(const char **)field = text;
        return true;
    case KIND_FIXED:
        return config_fixed_parse(text, field, &(struct fixed_fault){0});
    }
    return false;
}

/* ---- names ---- */

enum { PREFIX = sizeof("POOL_") - 1, NAME_MAX_BYTES = 64, NEAR = 4 };

static size_t find_variable(const char *name, size_t length) {
    for (size_t i = 0; i < COUNT; i++) {
        if (strlen(variables[i].name) == length && memcmp(variables[i].name, name, length) == 0) return i;
    }
    return COUNT;
}

static char upper(char c) {
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

/* Levenshtein distance, case ignored; `length` is below NAME_MAX_BYTES. */
static unsigned edit_distance(const char *name, size_t length, const char *known) {
    unsigned row[NAME_MAX_BYTES];
    for (size_t i = 0; i <= length; i++) row[i] = (unsigned)i;
    for (unsigned k = 1; *known != '\0'; known++, k++) {
        unsigned diagonal = row[0];
        row[0] = k;
        for (size_t i = 1; i <= length; i++) {
            unsigned best = diagonal + (upper(name[i - 1]) != *known);
            diagonal = row[i];
            if (row[i] + 1 < best) best = row[i] + 1;
            if (row[i - 1] + 1 < best) best = row[i - 1] + 1;
            row[i] = best;
        }
    }
    return row[length];
}

/* The known name that was probably meant: at most NEAR edits away, and those no more than half of what follows the
 * prefix; but two edits may be of three letters. */
static const char *nearest_name(const char *name, size_t length) {
    const char *nearest = NULL;
    unsigned least = NEAR + 1;
    if (length >= NAME_MAX_BYTES) return NULL;
    for (size_t i = 0; i < COUNT; i++) {
        const unsigned distance = edit_distance(name, length, variables[i].name);
        if (distance < least && 2 * distance <= strlen(variables[i].name) - PREFIX + (distance <= 2)) {
            least = distance;
            nearest = variables[i].name;
        }
    }
    return nearest;
}

static bool name_stands_before(char *const environment[], size_t entry, size_t length) {
    for (size_t i = 0; i < entry; i++) {
        if (strncmp(environment[i], environment[entry], length + 1) == 0) return true;
    }
    return false;
}

/* ---- complaints ---- */

static void describe_unknown(struct line *line, const char *name, size_t length) {
    line_add(line, "poolcuda: unknown variable ");
    line_add_foreign(line, name, length);
    const char *meant = nearest_name(name, length);
    if (meant != NULL) {
        line_add(line, "; did you mean ");
        line_add(line, meant);
        line_add(line, "?");
    } else {
        line_add(line, "; `poolstat help config` lists the known ones");
    }
}

/* Which item of a list is wrong, and how. */
static void describe_wrong_item(struct line *line, const char *list) {
    struct config_fixed fixed;
    struct fixed_fault fault;
    if (config_fixed_parse(list, &fixed, &fault)) return;
    if (fault.length == 0)
        line_add(line, "an item");
    else
        line_add_value(line, fault.item, fault.length);
    line_add(line, " ");
    line_add(line, fault.what);
    line_add(line, "; ");
}

static void describe_bad_value(struct line *line, size_t index, const char *value) {
    line_add(line, "poolcuda: ");
    line_add(line, variables[index].name);
    line_add(line, "=");
    line_add_value(line, value, strlen(value));
    line_add(line, ": ");
    if (rows[index].kind == KIND_FIXED) describe_wrong_item(line, value);
    line_add(line, "accepted is ");
    line_add(line, variables[index].range);
    line_add(line, "; using ");
    line_add(line, variables[index].default_text);
}

void config_parse(char *const environment[], struct config *out, void (*complain)(void *arg, const char *line),
                  void *arg) {
    uint32_t seen = 0;
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < COUNT; i++) set_default(out, &rows[i]);
    for (size_t entry = 0; environment != NULL && environment[entry] != NULL; entry++) {
        const char *name = environment[entry], *equals = strchr(name, '=');
        if (equals == NULL || strncmp(name, "POOL_", PREFIX) != 0) continue;
        const size_t length = (size_t)(equals - name), index = find_variable(name, length);
        struct line line = {.length = 0};
        if (index == COUNT) {
            if (complain == NULL || name_stands_before(environment, entry, length)) continue;
            describe_unknown(&line, name, length);
        } else {
            /* Of a name that stands twice, getenv gives the first. */
            if (seen & 1u << index) continue;
            seen |= 1u << index;
            if (set_from_text(out, index, equals + 1)) {
                out->from_environment |= 1u << index;
                continue;
            }
            describe_bad_value(&line, index, equals + 1);
        }
        if (complain != NULL) complain(arg, line.text);
    }
}

/* ---- the table as data ---- */

size_t config_variable_count(void) {
    return COUNT;
}

const struct config_variable *config_variable_at(size_t index) {
    return &variables[index];
}

uint64_t config_segment(const struct config *config) {
    const uint64_t step = UINT64_C(2) << 20, segment = (config->segment + step - 1) / step * step;
    const bool is_number = config->max_split != CONFIG_NONE && config->max_split != CONFIG_AUTO;
    const uint64_t most = is_number ? config->max_split / step * step : UINT64_MAX;
    return segment < most ? segment : most;
}

/* With the reason, where it is not what was asked for. */
static void segment_text(const struct config *config, char *text, size_t size) {
    const uint64_t segment = config_segment(config);
    snprintf(text, size, "%llu MiB%s", (unsigned long long)(segment >> 20),
             segment < config->segment ? ", by POOL_MAX_SPLIT_MB" : "");
}

void config_value_text(const struct config *config, size_t index, char *text, size_t size) {
    const struct row *row = &rows[index];
    const void *field = field_in(config, row);
    switch (row->kind) {
    case KIND_FLAG:
        snprintf(text, size, "%d", *(const bool *)field);
        break;
    case KIND_LEVEL:
        snprintf(text, size, "%d", *(const int *)field);
        break;
    case KIND_SIZE_MB: {
        const uint64_t bytes = *(const uint64_t *)field;
        if (bytes == CONFIG_NONE || bytes == CONFIG_AUTO)
            snprintf(text, size, "%s", bytes == CONFIG_NONE ? "none" : "auto");
        else if (field == &config->segment)
            segment_text(config, text, size);
        else
            snprintf(text, size, "%llu MiB", (unsigned long long)(bytes >> 20));
        break;
    }
    case KIND_WORD: {
        const char *range = variables[index].range, *word;
        size_t length;
        int left = *(const int *)field;
        while ((word = range_word(&range, &length)) != NULL && left > 0) left--;
        snprintf(text, size, "%.*s", word == NULL ? 0 : (int)length, word == NULL ? "" : word);
        break;
    }
    case KIND_PATH: {
        const char *path = *(const char *const *)field;
        snprintf(text, size, "%s", path == NULL ? variables[index].default_text : path);
        break;
    }
    case KIND_FIXED:
        config_fixed_text(field, text, size);
        break;
    }
}

bool config_from_environment(const struct config *config, size_t index) {
    return (config->from_environment >> index & 1u) != 0;
}

bool config_is_set(const struct config *config, const char *name) {
    return config_from_environment(config, find_variable(name, strlen(name)));
}

/* ---- the process's own ---- */

static struct config own;
static char own_log_file[PATH_MAX], own_trace[PATH_MAX];
/* An absolute path, %p and all. */
struct pattern {
    char text[PATH_MAX];
    size_t folder; /* bytes of the working directory before what the user wrote */
};
static struct pattern log_pattern, trace_pattern;
static bool own_ready;

static void complain_on_stderr(void *arg, const char *text) {
    (void)arg;
    char line[LINE_MAX_BYTES + 1];
    const int length = snprintf(line, sizeof line, "%s\n", text);
    struct guard guard;
    guard_enter(&guard);
    guard_write(STDERR_FILENO, line, (size_t)length);
    guard_leave(&guard);
}

/* A copy with %p replaced. False when it does not fit. */
static bool expand(const struct pattern *pattern, char *copy, size_t size) {
    size_t at = pattern->folder;
    if (at >= size) return false;
    memcpy(copy, pattern->text, at);
    copy[at] = '\0';
    for (const char *rest = pattern->text + at; *rest != '\0'; rest++) {
        const bool pid = rest[0] == '%' && rest[1] == 'p';
        const size_t left = size - at;
        const int length =
            pid ? snprintf(copy + at, left, "%ld", (long)getpid()) : snprintf(copy + at, left, "%c", *rest);
        if ((size_t)length >= left) return false;
        at += (size_t)length;
        rest += pid;
    }
    return true;
}

/* The environment may change or go away, and the program may change its directory: keep an absolute copy. False when it
 * does not fit. */
static bool keep_path(const char *path, struct pattern *pattern, char *copy) {
    pattern->folder = 0;
    if (*path != '/') {
        if (getcwd(pattern->text, sizeof pattern->text - 1) == NULL) return false;
        pattern->folder = strlen(pattern->text);
        pattern->text[pattern->folder++] = '/';
    }
    const size_t length = strlen(path);
    if (pattern->folder + length >= sizeof pattern->text) return false;
    memcpy(pattern->text + pattern->folder, path, length + 1);
    return expand(pattern, copy, PATH_MAX);
}

/* A program with raised privileges must not write where its caller says. */
static void settle_path(const char *variable, const char **field, struct pattern *pattern, char *copy) {
    const size_t index = find_variable(variable, strlen(variable));
    const char *path = *field;
    if (path == NULL) return;
    *field = copy;
    if (!getauxval(AT_SECURE) && keep_path(path, pattern, copy)) return;
    *field = NULL;
    own.from_environment &= ~(1u << index);
    if (getauxval(AT_SECURE)) return;
    struct line line = {.length = 0};
    describe_bad_value(&line, index, path);
    complain_on_stderr(NULL, line.text);
}

static void read_environment(void) {
    const int error = errno;
    config_parse(environ, &own, complain_on_stderr, NULL);
    settle_path("POOL_TRACE", &own.trace, &trace_pattern, own_trace);
    settle_path("POOL_LOG_FILE", &own.log_file, &log_pattern, own_log_file);
    __atomic_store_n(&own_ready, true, __ATOMIC_RELEASE);
    errno = error;
}

const struct config *config_get(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (__builtin_expect(!__atomic_load_n(&own_ready, __ATOMIC_ACQUIRE), 0)) pthread_once(&once, read_environment);
    return &own;
}

bool config_trace_file(char *path, size_t size) {
    return config_get()->trace != NULL && expand(&trace_pattern, path, size);
}
