/* SPDX-License-Identifier: MIT
 *
 * The POOL_* variables: what is accepted, what is said of the rest.
 */
#include "support/testing.h"

#include "config/config.h"

/* ---- complaints, collected ---- */

static char said[16][512];
static size_t said_count;

static void collect(void *arg, const char *line) {
    (void)arg;
    assert_in_range(said_count, 0, sizeof said / sizeof said[0] - 1);
    assert_null(strchr(line, '\n'));
    snprintf(said[said_count++], sizeof said[0], "%s", line);
}

static struct config parse_all(char *const environment[]) {
    struct config config;
    said_count = 0;
    config_parse(environment, &config, collect, NULL);
    return config;
}

static struct config parse(const char *entry) {
    char copy[8192];
    snprintf(copy, sizeof copy, "%s", entry);
    char *environment[] = {copy, NULL};
    return parse_all(environment);
}

static size_t index_of(const char *name) {
    for (size_t i = 0; i < config_variable_count(); i++) {
        if (strcmp(config_variable_at(i)->name, name) == 0) return i;
    }
    fail_msg("%s is not in the table", name);
    return 0;
}

static const char *value_of(const struct config *config, const char *name) {
    static char text[4096];
    config_value_text(config, index_of(name), text, sizeof text);
    return text;
}

#define MIB(n) ((uint64_t)(n) << 20)

/* ---- values ---- */

static void nothing_set_gives_the_documented_defaults(void **state) {
    (void)state;
    char *environment[] = {"PATH=/bin", NULL};
    const struct config config = parse_all(environment);
    assert_int_equal(said_count, 0);
    assert_true(config.enable);
    assert_int_equal(config.free_mode, 0);
    assert_true(config.max_split == CONFIG_AUTO);
    assert_true(config.segment == MIB(16));
    assert_false(config.control);
    assert_true(config.limit == CONFIG_NONE);
    assert_true(config.headroom == MIB(256));
    assert_true(config.trim == CONFIG_NONE);
    assert_int_equal(config.fill, CONFIG_FILL_NONE);
    assert_true(config.stats);
    assert_int_equal(config.log_level, 0);
    assert_null(config.log_file);
    assert_int_equal(config.from_environment, 0);
}

static void an_environment_that_does_not_exist_gives_the_defaults(void **state) {
    (void)state;
    const struct config config = parse_all(NULL);
    assert_true(config.enable);
    assert_int_equal(said_count, 0);
}

static void the_default_text_is_the_default(void **state) {
    (void)state;
    const struct config config = parse_all(NULL);
    for (size_t i = 0; i < config_variable_count(); i++) {
        const struct config_variable *variable = config_variable_at(i);
        char text[64], expected[64];
        config_value_text(&config, i, text, sizeof text);
        const bool digits = strspn(variable->default_text, "0123456789") == strlen(variable->default_text);
        const bool size = strstr(variable->name, "_MB") != NULL && digits;
        snprintf(expected, sizeof expected, "%s%s", variable->default_text, size ? " MiB" : "");
        assert_string_equal(text, expected);
    }
}

static void good_values_are_taken_without_a_word(void **state) {
    (void)state;
    static const struct {
        const char *entry, *name, *text;
    } good[] = {
        {"POOL_ENABLE=0", "POOL_ENABLE", "0"},
        {"POOL_ENABLE=1", "POOL_ENABLE", "1"},
        {"POOL_FREE=sync", "POOL_FREE", "sync"},
        {"POOL_FREE=event", "POOL_FREE", "event"},
        {"POOL_MAX_SPLIT_MB=auto", "POOL_MAX_SPLIT_MB", "auto"},
        {"POOL_MAX_SPLIT_MB=none", "POOL_MAX_SPLIT_MB", "none"},
        {"POOL_MAX_SPLIT_MB=2", "POOL_MAX_SPLIT_MB", "2 MiB"},
        {"POOL_MAX_SPLIT_MB=16777216", "POOL_MAX_SPLIT_MB", "16777216 MiB"},
        {"POOL_SEGMENT_MB=2", "POOL_SEGMENT_MB", "2 MiB"},
        {"POOL_SEGMENT_MB=1048576", "POOL_SEGMENT_MB", "1048576 MiB"},
        {"POOL_PREALLOC_MB=0", "POOL_PREALLOC_MB", "0 MiB"},
        {"POOL_PREALLOC_MB=16777216", "POOL_PREALLOC_MB", "16777216 MiB"},
        {"POOL_FIXED=none", "POOL_FIXED", "none"},
        {"POOL_FIXED=64MiB*32,1MiB*256", "POOL_FIXED", "64MiB*32,1MiB*256"},
        {"POOL_FIXED=1B*1,513B*1,2048KiB*7,3GiB*1", "POOL_FIXED", "1B*1,513B*1,2MiB*7,3GiB*1"},
        {"POOL_FIXED=16MiB*1048576", "POOL_FIXED", "16MiB*1048576"},
        {"POOL_FIXED=16384GiB*1", "POOL_FIXED", "16384GiB*1"},
        {"POOL_CONTROL=0", "POOL_CONTROL", "0"},
        {"POOL_CONTROL=1", "POOL_CONTROL", "1"},
        {"POOL_LIMIT_MB=none", "POOL_LIMIT_MB", "none"},
        {"POOL_LIMIT_MB=2", "POOL_LIMIT_MB", "2 MiB"},
        {"POOL_LIMIT_MB=0512", "POOL_LIMIT_MB", "512 MiB"},
        {"POOL_LIMIT_MB=16777216", "POOL_LIMIT_MB", "16777216 MiB"},
        {"POOL_HEADROOM_MB=0", "POOL_HEADROOM_MB", "0 MiB"},
        {"POOL_HEADROOM_MB=16777216", "POOL_HEADROOM_MB", "16777216 MiB"},
        {"POOL_TRIM_MB=0", "POOL_TRIM_MB", "0 MiB"},
        {"POOL_TRIM_MB=none", "POOL_TRIM_MB", "none"},
        {"POOL_TRIM_MB=16777216", "POOL_TRIM_MB", "16777216 MiB"},
        {"POOL_FILL=none", "POOL_FILL", "none"},
        {"POOL_FILL=zero", "POOL_FILL", "zero"},
        {"POOL_FILL=poison", "POOL_FILL", "poison"},
        {"POOL_STATS=0", "POOL_STATS", "0"},
        {"POOL_STATS=1", "POOL_STATS", "1"},
        {"POOL_TRACE=run.%p", "POOL_TRACE", "run.%p"},
        {"POOL_LOG=0", "POOL_LOG", "0"},
        {"POOL_LOG=3", "POOL_LOG", "3"},
        {"POOL_LOG_FILE=/var/log/a b.txt", "POOL_LOG_FILE", "/var/log/a b.txt"},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        char copy[64];
        snprintf(copy, sizeof copy, "%s", good[i].entry);
        char *environment[] = {copy, NULL};
        const struct config config = parse_all(environment);
        if (said_count != 0) fail_msg("%s: %s", good[i].entry, said[0]);
        if (strcmp(value_of(&config, good[i].name), good[i].text) != 0)
            fail_msg("%s: %s, expected %s", good[i].entry, value_of(&config, good[i].name), good[i].text);
        assert_int_equal(config.from_environment, 1u << index_of(good[i].name));
        assert_true(config_from_environment(&config, index_of(good[i].name)));
    }
}

/* Refused by every variable: blanks, signs, other bases, trailing text, overflow of 64 bits. */
static const char *const never_numbers[] = {"",
                                            " ",
                                            " 1",
                                            "1 ",
                                            "1\t",
                                            "+1",
                                            "-1",
                                            "-3",
                                            "0x1",
                                            "1e0",
                                            "1.0",
                                            "1M",
                                            "1 MB",
                                            "one",
                                            "NONE",
                                            "Auto",
                                            "or",
                                            "no",
                                            "1,",
                                            "none,",
                                            "nonesuch",
                                            "99999999999999999999999",
                                            "18446744073709551617",
                                            "18446744073709551621"};

static const struct {
    const char *name, *accepted, *used;
    const char *bad[6];
} variables[] = {
    {"POOL_ENABLE", "0 or 1", "1", {"2", "yes", "none", "auto", "true"}},
    {"POOL_FREE", "sync or event", "sync", {"0", "Event", "SYNC", "event,", "none", "or"}},
    {"POOL_ASYNC", "0 or 1", "1", {"2", "on", "none", "or"}},
    {"POOL_MAX_SPLIT_MB", "auto, none, or 2 to 16777216", "auto", {"0", "1", "16777217"}},
    {"POOL_SEGMENT_MB", "2 to 1048576", "16", {"0", "1", "1048577", "none", "auto", "to"}},
    {"POOL_PREALLOC_MB", "0 to 16777216", "0", {"16777217", "none", "auto", "to"}},
    {"POOL_FIXED",
     "none, or up to 16 different SIZE*COUNT with B, KiB, MiB or GiB, as 64MiB*32,1MiB*256",
     "none",
     {"64MiB", "64*32", "64mib*2", "64MiB*32;1MiB*2", "1MiB*2,", ",1MiB*2"}},
    {"POOL_CONTROL", "0 or 1", "0", {"2", "on", "none", "yes"}},
    {"POOL_LIMIT_MB", "none, or 2 to 16777216", "none", {"0", "1", "16777217", "auto", "17592186044417"}},
    {"POOL_HEADROOM_MB", "0 to 16777216", "256", {"16777217", "none", "auto", "to"}},
    {"POOL_TRIM_MB", "none, or 0 to 16777216", "none", {"16777217", "auto"}},
    {"POOL_FILL", "none, zero or poison", "none", {"0", "1", "Zero", "POISON", "zero,", "or"}},
    {"POOL_STATS", "0 or 1", "1", {"2", "on", "none", "or"}},
    {"POOL_TRACE", "a path; %p is replaced by the process id", "none", {""}},
    {"POOL_LOG", "0 to 3", "0", {"4", "256", "4294967296", "none", "debug"}},
    {"POOL_LOG_FILE", "a path; %p is replaced by the process id", "stderr", {""}},
};
enum { VARIABLES = sizeof variables / sizeof variables[0] };

static void the_ordinary_segment_is_told_as_it_comes_out(void **state) {
    (void)state;
    static const struct {
        const char *segment, *most, *text;
    } cases[] = {
        {"16", "auto", "16 MiB"},
        {"16", "none", "16 MiB"},
        {"16", "16", "16 MiB"},
        {"16", "15", "14 MiB, by POOL_MAX_SPLIT_MB"},
        {"16", "3", "2 MiB, by POOL_MAX_SPLIT_MB"},
        {"5", "100", "6 MiB"},
        {"5", "6", "6 MiB"},
        {"5", "5", "4 MiB, by POOL_MAX_SPLIT_MB"},
        {"1048576", "16777216", "1048576 MiB"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char segment[64], most[64], *environment[] = {segment, most, NULL};
        snprintf(segment, sizeof segment, "POOL_SEGMENT_MB=%s", cases[i].segment);
        snprintf(most, sizeof most, "POOL_MAX_SPLIT_MB=%s", cases[i].most);
        const struct config config = parse_all(environment);
        assert_string_equal(value_of(&config, "POOL_SEGMENT_MB"), cases[i].text);
    }
}

static void every_variable_of_the_table_is_tried_below(void **state) {
    (void)state;
    assert_int_equal(config_variable_count(), VARIABLES);
    for (size_t i = 0; i < VARIABLES; i++) {
        assert_string_equal(config_variable_at(i)->name, variables[i].name);
        assert_string_equal(config_variable_at(i)->range, variables[i].accepted);
        assert_string_equal(config_variable_at(i)->default_text, variables[i].used);
        assert_true(strlen(config_variable_at(i)->help) > 0);
    }
}

static void check_refused(size_t i, const char *value) {
    char entry[256], line[512];
    snprintf(entry, sizeof entry, "%s=%s", variables[i].name, value);
    const struct config config = parse(entry);
    if (said_count != 1) fail_msg("%s: %zu complaints, expected 1", entry, said_count);
    /* Of a list the item that is wrong is named before what is accepted. */
    const char *accepted = strstr(said[0], "accepted is ");
    const bool list = strcmp(variables[i].name, "POOL_FIXED") == 0;
    const int named = list && accepted != NULL ? (int)(accepted - said[0]) : 0;
    const char *mark = *value == '\0' || strchr(value, ' ') != NULL ? "'" : "";
    snprintf(line, sizeof line, "poolcuda: %s=%s%s%s: ", variables[i].name, mark,
             strcmp(value, "1\t") == 0 ? "1\\x09" : value, mark);
    assert_int_equal(strncmp(said[0], line, strlen(line)), 0);
    if (list) snprintf(line, sizeof line, "%.*s", named, said[0]);
    snprintf(line + strlen(line), sizeof line - strlen(line), "accepted is %s; using %s", variables[i].accepted,
             variables[i].used);
    assert_string_equal(said[0], line);
    char text[64];
    config_value_text(&config, index_of(variables[i].name), text, sizeof text);
    const size_t length = strlen(variables[i].used);
    if (strncmp(text, variables[i].used, length) != 0 || (text[length] != '\0' && text[length] != ' '))
        fail_msg("%s: in force is %s, expected %s", entry, text, variables[i].used);
    assert_int_equal(config.from_environment, 0);
}

static void bad_values_leave_the_default_and_cost_one_line(void **state) {
    (void)state;
    for (size_t i = 0; i < VARIABLES; i++) {
        const size_t numbers = sizeof never_numbers / sizeof never_numbers[0];
        const bool path =
            strcmp(variables[i].name, "POOL_LOG_FILE") == 0 || strcmp(variables[i].name, "POOL_TRACE") == 0;
        for (size_t k = 0; !path && k < numbers; k++) check_refused(i, never_numbers[k]);
        for (size_t k = 0; k < 6 && variables[i].bad[k] != NULL; k++) check_refused(i, variables[i].bad[k]);
    }
}

static void bad_lists_of_fixed_sizes_are_refused_as_a_whole(void **state) {
    (void)state;
    static const char *const bad[] = {
        "0MiB*4",
        "4MiB*0",
        "4MiB*1048577",
        "1MiB*4,0B*1",
        "MiB*4",
        "4MiB*",
        "4MiB*-1",
        "4 MiB*1",
        "4MiB*1 ",
        "4MB*1",
        "4M*1",
        "1MiB*1,none",
        "none,1MiB*1",
        "1MiB*1,,2MiB*1",
        "4MiBx2",
        "1MiB*4,1024KiB*4", /* one size twice */
        "1000B*4,1024B*4",  /* the same when rounded */
        "16385GiB*1",
        "8192GiB*2,1MiB*1",
        "17179869184KiB*2", /* more than any device has */
        "18446744073709551616B*1",
        "17179869185GiB*1",
        "1B*18446744073709551617",
        /* one too many */
        ("1B*1,1KiB*1,2KiB*1,3KiB*1,4KiB*1,5KiB*1,6KiB*1,7KiB*1,8KiB*1,"
         "9KiB*1,2MiB*1,3MiB*1,4MiB*1,5MiB*1,6MiB*1,7MiB*1,8MiB*1"),
    };
    size_t at = 0;
    while (strcmp(variables[at].name, "POOL_FIXED") != 0) at++;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char entry[256];
        snprintf(entry, sizeof entry, "POOL_FIXED=%s", bad[i]);
        const struct config config = parse(entry);
        if (said_count != 1 || config.fixed.count != 0)
            fail_msg("%s: %zu complaints, %u sizes", entry, said_count, config.fixed.count);
    }
    check_refused(at, "1MiB*1,1MiB*1");
}

static void the_item_of_a_list_that_is_wrong_is_named(void **state) {
    (void)state;
    static const struct {
        const char *list, *said;
    } bad[] = {
        {"", "an item is no SIZE*COUNT"},
        {"1MiB*2,", "an item is no SIZE*COUNT"},
        {"64MB*3", "64MB*3 is no SIZE*COUNT"},
        {"64*32", "64*32 is no SIZE*COUNT"},
        {"64MiB", "64MiB is no SIZE*COUNT"},
        {"1MiB*1, 2MiB*1,3MiB*1", "' 2MiB*1' is no SIZE*COUNT"},
        {"1MiB*4x,2MiB*1", "1MiB*4x is no SIZE*COUNT"},
        {"1MiB*\t", "1MiB*\\x09 is no SIZE*COUNT"},
        {"0B*2", "0B*2 has a size that is not 1 B to 16 TiB"},
        {"1MiB*1,17179869185GiB*1", "17179869185GiB*1 has a size that is not 1 B to 16 TiB"},
        {"1MiB*0,2MiB*1", "1MiB*0 has a count that is not 1 to 1048576"},
        {"1B*1048577", "1B*1048577 has a count that is not 1 to 1048576"},
        {"2KiB*1,1B*1,512B*1", "512B*1 repeats a size (they are rounded up to 512 bytes)"},
        {"8192GiB*2,1MiB*1", "1MiB*1 makes it more than 16 TiB"},
        {"1KiB*1,2KiB*1,3KiB*1,4KiB*1,5KiB*1,6KiB*1,7KiB*1,8KiB*1,9KiB*1,1MiB*1,2MiB*1,3MiB*1,4MiB*1,5MiB*1,6MiB*1,"
         "7MiB*1,8MiB*1,9MiB*1",
         "8MiB*1 is one too many"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char entry[256], line[512];
        snprintf(entry, sizeof entry, "POOL_FIXED=%s", bad[i].list);
        parse(entry);
        snprintf(line, sizeof line, ": %s; accepted is none, or ", bad[i].said);
        if (said_count != 1 || strstr(said[0], line) == NULL) fail_msg("%s: %s, expected %s", entry, said[0], line);
    }
}

static void fixed_sizes_are_kept_in_their_order(void **state) {
    (void)state;
    char entry[] = "POOL_FIXED=64MiB*32,1000B*256";
    const struct config config = parse(entry);
    assert_int_equal(said_count, 0);
    assert_int_equal(config.fixed.count, 2);
    assert_int_equal(config.fixed.sizes[0].bytes, MIB(64));
    assert_int_equal(config.fixed.sizes[0].blocks, 32);
    assert_int_equal(config.fixed.sizes[1].bytes, 1000);
    assert_int_equal(config.fixed.sizes[1].blocks, 256);
}

static void a_list_that_finds_no_room_as_text_ends_in_dots(void **state) {
    (void)state;
    char entry[] = "POOL_FIXED=1B*1,1KiB*1,2KiB*1,3KiB*1,4KiB*1,5KiB*1,6KiB*1,7KiB*1,8KiB*1,9KiB*1,10KiB*1,11KiB*1,"
                   "12KiB*1,13KiB*1,14KiB*1,15KiB*1";
    const struct config config = parse(entry);
    char text[24];
    assert_int_equal(said_count, 0);
    assert_int_equal(config.fixed.count, 16);
    config_value_text(&config, index_of("POOL_FIXED"), text, sizeof text);
    assert_string_equal(text, "1B*1,1KiB*1,2KiB*1...");
}

static void a_bad_value_without_a_listener_is_just_not_used(void **state) {
    (void)state;
    char *environment[] = {"POOL_LIMIT_MB=x", "POOL_NO=1", "POOL_TRIM_MB=7", NULL};
    struct config config;
    config_parse(environment, &config, NULL, NULL);
    assert_true(config.limit == CONFIG_NONE);
    assert_true(config.trim == MIB(7));
}

static void a_path_longer_than_the_system_takes_is_refused(void **state) {
    (void)state;
    char entry[5000] = "POOL_LOG_FILE=/";
    memset(entry + strlen(entry), 'a', 4500);
    const struct config config = parse(entry);
    assert_null(config.log_file);
    assert_int_equal(said_count, 1);
    assert_in_range(strlen(said[0]), 1, 200);
    assert_non_null(strstr(said[0], "...: accepted is a path"));
}

static void of_a_name_that_stands_twice_the_first_counts(void **state) {
    (void)state;
    char *environment[] = {"POOL_LIMIT_MB=5", "POOL_LIMIT_MB=bad", "POOL_TRIM_MB=bad", "POOL_TRIM_MB=6", NULL};
    const struct config config = parse_all(environment);
    assert_true(config.limit == MIB(5));
    assert_true(config.trim == CONFIG_NONE);
    assert_int_equal(said_count, 1);
    assert_string_equal(said[0], "poolcuda: POOL_TRIM_MB=bad: accepted is none, or 0 to 16777216; using none");
}

static void several_variables_are_set_together(void **state) {
    (void)state;
    char *environment[] = {"POOL_TRIM_MB=6", "HOME=/", "POOL_ENABLE=0", "POOL_LOG=2", NULL};
    const struct config config = parse_all(environment);
    assert_int_equal(said_count, 0);
    assert_true(config.trim == MIB(6));
    assert_false(config.enable);
    assert_int_equal(config.log_level, 2);
    assert_int_equal(config.from_environment,
                     1u << index_of("POOL_TRIM_MB") | 1u << index_of("POOL_ENABLE") | 1u << index_of("POOL_LOG"));
}

/* ---- names ---- */

static void an_unknown_name_is_reported_with_the_nearest_known_one(void **state) {
    (void)state;
    static const struct {
        const char *entry, *line;
    } names[] = {
        {"POOL_LIMT_MB=3", "poolcuda: unknown variable POOL_LIMT_MB; did you mean POOL_LIMIT_MB?"},
        {"POOL_LIMT=3", "poolcuda: unknown variable POOL_LIMT; did you mean POOL_LIMIT_MB?"},
        {"POOL_SIZE=3", "poolcuda: unknown variable POOL_SIZE; `poolstat help config` lists the known ones"},
        {"POOL_LIMIT=3", "poolcuda: unknown variable POOL_LIMIT; did you mean POOL_LIMIT_MB?"},
        {"POOL_LIMIT_GB=3", "poolcuda: unknown variable POOL_LIMIT_GB; did you mean POOL_LIMIT_MB?"},
        {"POOL_limit_mb=3", "poolcuda: unknown variable POOL_limit_mb; did you mean POOL_LIMIT_MB?"},
        {"POOL_ENABLED=0", "poolcuda: unknown variable POOL_ENABLED; did you mean POOL_ENABLE?"},
        {"POOL_STAT=", "poolcuda: unknown variable POOL_STAT; did you mean POOL_STATS?"},
        {"POOL_LOGFILE=x", "poolcuda: unknown variable POOL_LOGFILE; did you mean POOL_LOG_FILE?"},
        {"POOL_LGO=1", "poolcuda: unknown variable POOL_LGO; did you mean POOL_LOG?"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct config config = parse(names[i].entry);
        assert_int_equal(said_count, 1);
        assert_string_equal(said[0], names[i].line);
        assert_int_equal(config.from_environment, 0);
    }
}

static void a_name_like_none_of_ours_is_reported_with_where_to_look(void **state) {
    (void)state;
    static const char *const names[] = {"POOL_ADDRESS",         "POOL_",    "POOL_ID",
                                        "POOL_WORKERS_MAXIMUM", "POOL_XYZ", "POOL_QQQ_SPQQT_MB"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char entry[64], line[256];
        snprintf(entry, sizeof entry, "%s=1", names[i]);
        snprintf(line, sizeof line, "poolcuda: unknown variable %s; `poolstat help config` lists the known ones",
                 names[i]);
        parse(entry);
        assert_int_equal(said_count, 1);
        assert_string_equal(said[0], line);
    }
}

static void an_unknown_name_that_stands_twice_costs_one_line(void **state) {
    (void)state;
    char *environment[] = {"POOL_LIMT_MB=1", "POOL_LIMT_MB=2", "POOL_LIMT_MBX=3", "POOL_LIMT_MB=4", NULL};
    parse_all(environment);
    assert_int_equal(said_count, 2);
}

static void names_that_do_not_begin_with_our_prefix_are_not_ours(void **state) {
    (void)state;
    char *environment[] = {"POOLCUDA_LIMIT_MB=1",
                           "pool_limit_mb=1",
                           "XPOOL_LIMIT_MB=1",
                           "POOL=1",
                           "POOL_LIMIT_MB",
                           "",
                           "=POOL_LIMIT_MB=1",
                           "POOLS_1=1",
                           NULL};
    const struct config config = parse_all(environment);
    assert_int_equal(said_count, 0);
    assert_int_equal(config.from_environment, 0);
}

/* ---- foreign text in our lines ---- */

static void control_and_other_odd_bytes_are_escaped(void **state) {
    (void)state;
    parse("POOL_LIMIT_MB=\x1b[31m\n\x7f\xc2\x9b\\");
    assert_string_equal(said[0],
                        "poolcuda: POOL_LIMIT_MB=\\x1b[31m\\x0a\\x7f\\xc2\\x9b\\x5c: accepted is none, or 2 to "
                        "16777216; using none");
    parse("POOL_L\x1bIMIT_MB\r=1");
    assert_string_equal(said[0], "poolcuda: unknown variable POOL_L\\x1bIMIT_MB\\x0d; did you mean POOL_LIMIT_MB?");
}

static void long_text_is_shortened(void **state) {
    (void)state;
    char entry[4096] = "POOL_LIMIT_MB=", line[512];
    memset(entry + strlen(entry), '7', 3000);
    parse(entry);
    snprintf(line, sizeof line, "poolcuda: POOL_LIMIT_MB=%.*s...: accepted is none, or 2 to 16777216; using none", 48,
             entry + strlen("POOL_LIMIT_MB="));
    assert_string_equal(said[0], line);

    memset(entry, 'Q', sizeof entry - 1);
    memcpy(entry, "POOL_", 5);
    entry[3000] = '=';
    parse(entry);
    snprintf(line, sizeof line, "poolcuda: unknown variable %.*s...; `poolstat help config` lists the known ones", 48,
             entry);
    assert_string_equal(said[0], line);
}

static void the_worst_line_stays_whole(void **state) {
    (void)state;
    char entry[4096] = "POOL_MAX_SPLIT_MB=";
    memset(entry + strlen(entry), '\x01', 3000);
    parse(entry);
    assert_int_equal(said_count, 1);
    assert_non_null(strstr(said[0], "; using auto"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(nothing_set_gives_the_documented_defaults),
    cmocka_unit_test(an_environment_that_does_not_exist_gives_the_defaults),
    cmocka_unit_test(the_default_text_is_the_default),
    cmocka_unit_test(good_values_are_taken_without_a_word),
    cmocka_unit_test(the_ordinary_segment_is_told_as_it_comes_out),
    cmocka_unit_test(every_variable_of_the_table_is_tried_below),
    cmocka_unit_test(bad_values_leave_the_default_and_cost_one_line),
    cmocka_unit_test(the_item_of_a_list_that_is_wrong_is_named),
    cmocka_unit_test(bad_lists_of_fixed_sizes_are_refused_as_a_whole),
    cmocka_unit_test(fixed_sizes_are_kept_in_their_order),
    cmocka_unit_test(a_list_that_finds_no_room_as_text_ends_in_dots),
    cmocka_unit_test(a_bad_value_without_a_listener_is_just_not_used),
    cmocka_unit_test(a_path_longer_than_the_system_takes_is_refused),
    cmocka_unit_test(of_a_name_that_stands_twice_the_first_counts),
    cmocka_unit_test(several_variables_are_set_together),
    cmocka_unit_test(an_unknown_name_is_reported_with_the_nearest_known_one),
    cmocka_unit_test(a_name_like_none_of_ours_is_reported_with_where_to_look),
    cmocka_unit_test(an_unknown_name_that_stands_twice_costs_one_line),
    cmocka_unit_test(names_that_do_not_begin_with_our_prefix_are_not_ours),
    cmocka_unit_test(control_and_other_odd_bytes_are_escaped),
    cmocka_unit_test(long_text_is_shortened),
    cmocka_unit_test(the_worst_line_stays_whole),
};

TESTING_MAIN(tests)
