/* SPDX-License-Identifier: MIT
 *
 * A parser by recursive descent, and the evaluation in three values.
 */
#include "expression.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "memory.h"

#define DEEPEST 100u /* conditions inside each other */

enum node { NODE_OR, NODE_AND, NODE_NOT, NODE_COMPARISON, NODE_FLAG };

struct operand {
    const struct column *column; /* NULL: a number */
    long double number;
    enum column_unit unit; /* of a number; COLUMN_COUNT: it has none */
    size_t at;             /* in the text */
};

struct expression {
    enum node node;
    struct expression *left, *right; /* of or and and; of not: left */
    char operator[3];                /* of a comparison */
    struct operand a, b;             /* of a comparison; of a flag: a */
};

struct parser {
    const char *text;
    size_t at;
    unsigned depth;
    char *why;
    size_t why_size;
    size_t wrong_at;
};

static struct expression *parse_or(struct parser *parser);

void expression_free(struct expression *expression) {
    if (expression == NULL) return;
    expression_free(expression->left);
    expression_free(expression->right);
    free(expression);
}

/* The first thing that is wrong. Returns NULL, as what was being made. */
static void *wrong(struct parser *parser, size_t at, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void *wrong(struct parser *parser, size_t at, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (parser->why[0] == '\0') {
        vsnprintf(parser->why, parser->why_size, format, arguments);
        parser->wrong_at = at;
    }
    va_end(arguments);
    return NULL;
}

static void skip_blanks(struct parser *parser) {
    while (isspace((unsigned char)parser->text[parser->at])) parser->at++;
}

static size_t word_length(const char *text) {
    size_t length = 0;
    while (isalnum((unsigned char)text[length]) || text[length] == '_') length++;
    return length;
}

static bool next_is(struct parser *parser, const char *symbol) {
    skip_blanks(parser);
    const char *at = parser->text + parser->at;
    const size_t length = strlen(symbol);
    if (strncasecmp(at, symbol, length) != 0) return false;
    return !isalpha((unsigned char)symbol[0]) || word_length(at) == length;
}

static bool take(struct parser *parser, const char *symbol) {
    if (!next_is(parser, symbol)) return false;
    parser->at += strlen(symbol);
    return true;
}

static struct expression *make(enum node node, struct expression *left, struct expression *right) {
    struct expression *made = memory_new(1, sizeof(*made));
    *made = (struct expression){.node = node, .left = left, .right = right};
    return made;
}

static bool take_unit(struct parser *parser, struct operand *operand) {
    static const struct {
        const char *name;
        enum column_unit unit;
        long double factor;
    } units[] = {{"%", COLUMN_RATIO, 0.01L},
                 {"B", COLUMN_BYTES, 1},
                 {"KiB", COLUMN_BYTES, 1024.0L},
                 {"MiB", COLUMN_BYTES, 1048576.0L},
                 {"GiB", COLUMN_BYTES, 1073741824.0L},
                 {"TiB", COLUMN_BYTES, 1099511627776.0L},
                 {"PiB", COLUMN_BYTES, 1125899906842624.0L},
                 {"KB", COLUMN_BYTES, 1e3L},
                 {"MB", COLUMN_BYTES, 1e6L},
                 {"GB", COLUMN_BYTES, 1e9L},
                 {"TB", COLUMN_BYTES, 1e12L},
                 {"PB", COLUMN_BYTES, 1e15L},
                 {"ns", COLUMN_NS, 1},
                 {"us", COLUMN_NS, 1e3L},
                 {"ms", COLUMN_NS, 1e6L},
                 {"s", COLUMN_NS, 1e9L},
                 {"min", COLUMN_NS, 60e9L},
                 {"h", COLUMN_NS, 3600e9L}};
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (!take(parser, units[i].name)) continue;
        operand->unit = units[i].unit;
        operand->number *= units[i].factor;
        return true;
    }
    const char *at = parser->text + parser->at;
    const size_t length = word_length(at);
    if (length == 0 || next_is(parser, "and") || next_is(parser, "or")) return true;
    wrong(parser, parser->at, "'%.*s' is no unit: B, KiB, MiB, GiB, TiB, KB, MB, GB, TB, %%, ns, us, ms, s, min, h",
          (int)(length < 40 ? length : 40), at);
    return false;
}

static bool take_number(struct parser *parser, struct operand *operand) {
    const char *at = parser->text + parser->at;
    const size_t length = strspn(at, "0123456789.");
    const char *point = memchr(at, '.', length);
    const bool has_two = point != NULL && memchr(point + 1, '.', length - (size_t)(point + 1 - at)) != NULL;
    char digits[64];
    if (length >= sizeof(digits) || has_two || (length == 1 && point != NULL))
        return wrong(parser, parser->at, "'%.*s' is no number", (int)(length < 40 ? length : 40), at) != NULL;
    memcpy(digits, at, length);
    digits[length] = '\0';
    operand->number = strtold(digits, NULL);
    operand->unit = COLUMN_COUNT;
    parser->at += length;
    return take_unit(parser, operand);
}

static bool take_name(struct parser *parser, struct operand *operand) {
    const char *at = parser->text + parser->at;
    const size_t length = word_length(at);
    const int shown = (int)(length < 60 ? length : 60);
    if (length == 0 && *at == '\0') return wrong(parser, parser->at, "a figure or a number is missing") != NULL;
    if (length == 0) return wrong(parser, parser->at, "a figure or a number is wanted here") != NULL;
    operand->column = columns_find(at, length);
    if (operand->column == NULL) {
        char *name = memory_format("%.*s", shown, at);
        const char *near = columns_nearest(name);
        wrong(parser, parser->at, "there is no figure '%s'%s%s%s; all of them: poolstat help fields", name,
              near == NULL ? "" : "; did you mean ", near == NULL ? "" : near, near == NULL ? "" : "?");
        free(name);
        return false;
    }
    if (operand->column->unit == COLUMN_TEXT)
        return wrong(parser, parser->at, "'%.*s' is no number, and cannot be compared", shown, at) != NULL;
    operand->unit = operand->column->unit;
    parser->at += length;
    return true;
}

static bool take_operand(struct parser *parser, struct operand *operand) {
    skip_blanks(parser);
    const char first = parser->text[parser->at];
    *operand = (struct operand){.at = parser->at};
    return isdigit((unsigned char)first) || first == '.' ? take_number(parser, operand) : take_name(parser, operand);
}

/* Is the number one that this figure may be compared with? */
static bool suits(struct parser *parser, const struct operand *figure, const struct operand *other) {
    static const char *const wanted[] = {[COLUMN_BYTES] = "bytes",
                                         [COLUMN_NS] = "a time",
                                         [COLUMN_RATIO] = "a ratio of 0 to 1, or with %",
                                         [COLUMN_COUNT] = "a number without a unit",
                                         [COLUMN_FLAG] = "nothing: it stands alone"};
    if (figure->column->unit == other->unit && other->unit != COLUMN_FLAG) return true;
    if (other->column == NULL && other->unit == COLUMN_COUNT && figure->column->unit != COLUMN_FLAG) return true;
    return wrong(parser, other->at, "%s is to be compared with %s", figure->column->name,
                 wanted[figure->column->unit]) != NULL;
}

static struct expression *parse_comparison(struct parser *parser) {
    static const char *const operators[] = {"<=", ">=", "==", "!=", "<", ">"};
    struct expression made = {.node = NODE_COMPARISON};
    if (!take_operand(parser, &made.a)) return NULL;
    for (size_t i = 0; made.operator[0] == '\0' && i<sizeof(operators) / sizeof(operators[0]); i++)
        if (take(parser, operators[i])) strcpy(made.operator, operators[i]);
    if (made.operator[0] == '\0' && next_is(parser, "=")) return wrong(parser, parser->at, "equality is written ==");
    if (made.operator[0] == '\0' && made.a.unit != COLUMN_FLAG)
        return wrong(parser, parser->at, "a comparison is missing: < <= > >= == !=");
    if (made.operator[0] == '\0') {
        made.node = NODE_FLAG;
    } else {
        if (!take_operand(parser, &made.b)) return NULL;
        if (made.a.column == NULL && made.b.column == NULL)
            return wrong(parser, made.a.at, "two numbers are compared, and no figure");
        if (made.a.column != NULL ? !suits(parser, &made.a, &made.b) : !suits(parser, &made.b, &made.a)) return NULL;
        for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]); i++)
            if (next_is(parser, operators[i])) return wrong(parser, parser->at, "comparisons are joined by and, or");
    }
    struct expression *kept = make(made.node, NULL, NULL);
    *kept = made;
    return kept;
}

static struct expression *parse_not(struct parser *parser) {
    struct expression *inner;
    skip_blanks(parser);
    if (parser->depth == DEEPEST)
        return wrong(parser, parser->at, "there are more than %u conditions inside each other", DEEPEST);
    parser->depth++;
    const size_t opened = parser->at;
    if (take(parser, "not") || (!next_is(parser, "!=") && take(parser, "!"))) {
        inner = parse_not(parser);
        if (inner != NULL) inner = make(NODE_NOT, inner, NULL);
    } else if (take(parser, "(")) {
        inner = parse_or(parser);
        if (inner != NULL && !take(parser, ")")) {
            skip_blanks(parser);
            wrong(parser, parser->text[parser->at] == '\0' ? opened : parser->at, "a ) is missing");
            expression_free(inner);
            inner = NULL;
        }
    } else {
        inner = parse_comparison(parser);
    }
    parser->depth--;
    return inner;
}

/* Conditions of the next stronger kind, joined by a word or its symbol. */
static struct expression *parse_joined(struct parser *parser, enum node node, const char *word, const char *symbol,
                                       struct expression *(*stronger)(struct parser *parser)) {
    struct expression *left = stronger(parser);
    while (left != NULL && (take(parser, word) || take(parser, symbol))) {
        struct expression *right = stronger(parser);
        if (right == NULL) {
            expression_free(left);
            return NULL;
        }
        left = make(node, left, right);
    }
    return left;
}

static struct expression *parse_and(struct parser *parser) {
    return parse_joined(parser, NODE_AND, "and", "&&", parse_not);
}

static struct expression *parse_or(struct parser *parser) {
    return parse_joined(parser, NODE_OR, "or", "||", parse_and);
}

struct expression *expression_parse(const char *text, char *why, size_t size, size_t *at) {
    struct parser parser = {.text = text, .why = why, .why_size = size};
    why[0] = '\0';
    struct expression *expression = parse_or(&parser);
    skip_blanks(&parser);
    if (expression != NULL && text[parser.at] != '\0') {
        wrong(&parser, parser.at, "conditions are joined by and, or");
        expression_free(expression);
        expression = NULL;
    }
    *at = parser.wrong_at;
    return expression;
}

static bool value_of(const struct operand *operand, const struct row *row, long double *number) {
    *number = operand->number;
    if (operand->column == NULL) return true;
    struct value value = column_value(operand->column, row);
    *number = value.unit == COLUMN_RATIO ? (long double)value.ratio : (long double)value.number;
    value_free(&value);
    return value.known;
}

static bool compare(const char *operator, long double a, long double b) {
    switch (operator[0]) {
    case '<':
        return operator[1] == '=' ? a <= b : a<b;
    case '>':
        return operator[1] == '=' ? a >= b : a> b;
    case '=':
        return a == b;
    default:
        return a != b;
    }
}

/* Or, and and by what decides them: one that holds, and one that fails. */
static enum verdict join(enum verdict decisive, enum verdict left, enum verdict right) {
    if (left == decisive || right == decisive) return decisive;
    if (left == VERDICT_UNKNOWN || right == VERDICT_UNKNOWN) return VERDICT_UNKNOWN;
    return left;
}

enum verdict expression_evaluate(const struct expression *expression, const struct row *row) {
    enum verdict left, right;
    long double a, b;
    switch (expression->node) {
    case NODE_OR:
    case NODE_AND:
        left = expression_evaluate(expression->left, row);
        right = expression_evaluate(expression->right, row);
        return join(expression->node == NODE_OR ? VERDICT_HOLDS : VERDICT_FAILS, left, right);
    case NODE_NOT:
        left = expression_evaluate(expression->left, row);
        return left == VERDICT_UNKNOWN ? left : left == VERDICT_HOLDS ? VERDICT_FAILS : VERDICT_HOLDS;
    case NODE_FLAG:
        if (!value_of(&expression->a, row, &a)) return VERDICT_UNKNOWN;
        return a != 0 ? VERDICT_HOLDS : VERDICT_FAILS;
    case NODE_COMPARISON:
        if (!value_of(&expression->a, row, &a) || !value_of(&expression->b, row, &b)) return VERDICT_UNKNOWN;
        return compare(expression->operator, a, b) ? VERDICT_HOLDS : VERDICT_FAILS;
    }
    return VERDICT_UNKNOWN;
}

static void add_column(const struct column *column, const struct column **columns, size_t *count) {
    for (size_t i = 0; i < *count; i++)
        if (columns[i] == column) return;
    if (column != NULL) columns[(*count)++] = column;
}

static void add_columns(const struct expression *expression, const struct column **columns, size_t *count) {
    if (expression == NULL) return;
    add_columns(expression->left, columns, count);
    add_columns(expression->right, columns, count);
    add_column(expression->a.column, columns, count);
    add_column(expression->b.column, columns, count);
}

size_t expression_columns(const struct expression *expression, const struct column ***columns) {
    size_t all, count = 0;
    columns_all(&all);
    *columns = memory_new(all, sizeof(**columns));
    add_columns(expression, *columns, &count);
    return count;
}
