/* SPDX-License-Identifier: MIT
 *
 * The live view without a terminal: cells, pictures, what is known of processes over time, keys, and pages of any size.
 */
#include <math.h>
#include <time.h>
#include <unistd.h>

#include "testing.h"

#include "poolstat/live_keys.h"
#include "poolstat/live_since.h"
#include "poolstat/live_view.h"
#include "poolstat/memory.h"
#include "poolstat/text.h"

#define MIB (UINT64_C(1) << 20)
#define SECOND UINT64_C(1000000000)

static void assert_row(const struct canvas *canvas, size_t row, const char *wanted) {
    char *text = canvas_row_text(canvas, row);
    assert_string_equal(text, wanted);
    free(text);
}

/* ---- cells ---- */

static void text_stays_in_its_columns(void **state) {
    struct canvas canvas;
    (void)state;
    canvas_start(&canvas, 10, 2);
    assert_int_equal(canvas_put(&canvas, 0, 2, 4, STYLE_PLAIN, "abc"), 3);
    assert_int_equal(canvas_put(&canvas, 0, 6, 99, STYLE_PLAIN, "0123456"), 4);
    assert_row(&canvas, 0, "  abc 012+");
    canvas_put_right(&canvas, 1, 2, 5, STYLE_PLAIN, "xy");
    assert_row(&canvas, 1, "     xy");
    canvas_put_right(&canvas, 1, 2, 5, STYLE_PLAIN, "longer");
    assert_row(&canvas, 1, "  long+");
    assert_int_equal(canvas_put(&canvas, 2, 0, 5, STYLE_PLAIN, "x"), 0);
    assert_int_equal(canvas_put(&canvas, 0, 10, 5, STYLE_PLAIN, "x"), 0);
    assert_int_equal(canvas_put(&canvas, 0, 0, 0, STYLE_PLAIN, "x"), 0);
    canvas_free(&canvas);
}

static void wide_characters_are_never_halved(void **state) {
    struct canvas canvas;
    (void)state;
    canvas_start(&canvas, 6, 1);
    assert_int_equal(canvas_put(&canvas, 0, 0, 6, STYLE_PLAIN, "日本語"), 6);
    assert_row(&canvas, 0, "日本語");
    assert_int_equal(canvas_put(&canvas, 0, 0, 5, STYLE_PLAIN, "日本語"), 5);
    assert_row(&canvas, 0, "日本+");
    canvas_put(&canvas, 0, 1, 1, STYLE_PLAIN, "x"); /* over a right half */
    assert_row(&canvas, 0, " x本+");
    canvas_put(&canvas, 0, 2, 1, STYLE_PLAIN, "y"); /* over a left one */
    assert_row(&canvas, 0, " xy +");
    canvas_free(&canvas);
}

static void rows_are_copied_into_a_place(void **state) {
    struct canvas page, canvas;
    (void)state;
    canvas_start(&page, 4, 0);
    for (int i = 0; i < 5; i++) {
        const char text[] = {(char)('a' + i), '\0'};
        canvas_put(&page, canvas_add_row(&page), 0, 4, STYLE_PLAIN, text);
    }
    canvas_start(&canvas, 6, 4);
    canvas_copy(&canvas, 1, 2, &page, 3, 9);
    assert_row(&canvas, 0, "");
    assert_row(&canvas, 1, "  d");
    assert_row(&canvas, 2, "  e");
    assert_row(&canvas, 3, "");
    canvas_copy(&canvas, 3, 5, &page, 0, 1); /* only its first column has room */
    assert_row(&canvas, 3, "     a");
    canvas_copy(&canvas, 0, 6, &page, 0, 4);
    assert_row(&canvas, 0, "");
    canvas_free(&page);
    canvas_free(&canvas);
}

/* ---- pictures ---- */

static void assert_bar(bool ascii, struct draw_memory memory, const char *wanted) {
    struct canvas canvas;
    canvas_start(&canvas, 12, 1);
    draw_bar(&canvas, draw_marks(ascii), 0, 1, 10, &memory);
    assert_row(&canvas, 0, wanted);
    canvas_free(&canvas);
}

static void bars_show_the_parts_of_the_whole(void **state) {
    (void)state;
    assert_bar(true, (struct draw_memory){30, 20, 60, 100}, " ###==-....");
    assert_bar(false, (struct draw_memory){30, 20, 60, 100}, " ███▒▒░····");
    assert_bar(true, (struct draw_memory){0, 0, 0, 100}, " ..........");
    assert_bar(true, (struct draw_memory){100, 0, 100, 100}, " ##########");
}

static void little_is_seen_and_nonsense_stays_in_the_bar(void **state) {
    (void)state;
    assert_bar(true, (struct draw_memory){1, 1, 3, 1000000}, " #=-.......");
    assert_bar(true, (struct draw_memory){0, 0, 0, 0}, " ..........");
    assert_bar(true, (struct draw_memory){5, 5, 10, 0}, " #=........");
    assert_bar(true, (struct draw_memory){UINT64_MAX, UINT64_MAX, UINT64_MAX, 10}, " ##########");
    assert_bar(true, (struct draw_memory){50, UINT64_MAX, 50, 100}, " #####.....");
    assert_bar(true, (struct draw_memory){999, 999, 50, 100}, " #####.....");
}

static void histories_stand_at_the_right_and_on_the_ground(void **state) {
    static const double values[] = {100, NAN, 0, 1, 50, 100};
    struct canvas canvas;
    (void)state;
    canvas_start(&canvas, 8, 2);
    draw_history(&canvas, draw_marks(false), 0, 1, 0, 8, STYLE_PLAIN, values, 6, 0);
    assert_row(&canvas, 0, "  █  ▁▄█");
    draw_history(&canvas, draw_marks(false), 1, 1, 0, 3, STYLE_PLAIN, values, 6,
                 200); /* the last three, half as high */
    assert_row(&canvas, 1, "▁▂▄");
    canvas_free(&canvas);
    canvas_start(&canvas, 3, 3);
    draw_history(&canvas, draw_marks(true), 0, 3, 0, 3, STYLE_PLAIN, values + 3, 3, 0);
    assert_row(&canvas, 0, "  #");
    assert_row(&canvas, 1, " -#");
    assert_row(&canvas, 2, "_##");
    canvas_free(&canvas);
}

static void heat_has_a_level_for_each_sixteenth(void **state) {
    static const uint64_t values[] = {0, 1, 256, 4096, 65536, 65536 / 16, 65536 / 16 - 1};
    struct canvas canvas;
    (void)state;
    canvas_start(&canvas, 14, 1);
    draw_heat(&canvas, draw_marks(true), 0, 0, 2, values, 7);
    assert_row(&canvas, 0, "..::**######**");
    canvas_free(&canvas);
    assert_int_equal(draw_heat_level(0, 0), 0);
    assert_int_equal(draw_heat_level(1, 1), DRAW_HEAT_LEVELS);
    assert_int_equal(draw_heat_level(1, UINT64_MAX), 1);
}

/* ---- processes over time ---- */

/* What a process of these tests has. */
struct figures {
    uint32_t pid;
    const char *command;
    uint64_t live, cached, allocs, misses;
    int32_t devices; /* 0: no pool yet; −1: the segment is damaged */
};

static struct segment *make_segment(const struct figures *figures, uint64_t now_ns) {
    struct segment *segment = memory_new(1, sizeof(*segment));
    segment->read_ns = now_ns;
    segment->header.pid = figures->pid;
    memcpy(segment->header.command, figures->command, strnlen(figures->command, sizeof(segment->header.command)));
    segment->pool_count = (size_t)figures->devices;
    segment->pools = memory_new(segment->pool_count, sizeof(*segment->pools));
    for (int32_t i = 0; i < figures->devices; i++) {
        struct segment_pool *pool = &segment->pools[i];
        pool->number = (uint32_t)i + 1;
        pool->record.device = i;
        pool->record.kind = POOLCUDA_KIND_PLAIN;
        pool->record.generation = 1;
        pool->record.uuid[0] = (uint8_t)(0xa0 + i);
        pool->record.device_total_bytes = 1024 * MIB;
        pool->record.reserved_bytes = pool->record.peak_reserved_bytes = figures->live + figures->cached;
        pool->record.idle_bytes = figures->cached;
        pool->record.trims = figures->allocs / 10;
        pool->cells = memory_new(1, sizeof(*pool->cells));
        pool->cell_count = 1;
        pool->cells[0].classes[11] = (struct poolcuda_size_class){.allocs = figures->allocs,
                                                                  .misses = figures->misses,
                                                                  .alloc_bytes = figures->live,
                                                                  .held_bytes = figures->live};
    }
    segment->events = memory_new(1, sizeof(*segment->events));
    segment->events[0] = (struct poolcuda_event){.sequence = 1, .time_ns = now_ns, .type = POOLCUDA_EVENT_oom};
    segment->event_count = 1;
    return segment;
}

static void look(struct live *live, uint64_t seconds, const struct figures *figures, size_t count) {
    struct collection collection = {memory_new(count, sizeof(struct process)), count};
    for (size_t i = 0; i < count; i++) {
        struct process *process = &collection.processes[i];
        *process = (struct process){.pid = figures[i].pid, .inner_pid = figures[i].pid};
        process->file = (struct found){.path = memory_format("/x/poolcuda-0-%u-1", figures[i].pid),
                                       .inode = figures[i].pid,
                                       .pid = figures[i].pid,
                                       .start_ticks = 1};
        if (figures[i].devices < 0) {
            process->code = CODE_DAMAGED;
            strcpy(process->why, "is damaged: nothing fits");
        } else {
            process->segment = make_segment(&figures[i], seconds * SECOND);
        }
    }
    live_model_update(&live->model, &collection, seconds * SECOND, false);
    live_view_follow(live);
    assert_int_equal(collection.count, 0);
}

static const struct options no_options;

static void start(struct live *live) {
    live_view_start(live, &no_options, true);
}

static void type(struct live *live, const char *keys) {
    for (; *keys != '\0'; keys++) live_view_key(live, (unsigned char)*keys);
}

/* The pids of the rows, in their order: "3 1 2". */
static void assert_order(const struct live *live, const char *wanted) {
    char text[128] = "";
    for (size_t i = 0; i < live->model.shown_count; i++)
        sprintf(text + strlen(text), "%s%u", i == 0 ? "" : " ", live->model.shown[i]->process->process.inner_pid);
    assert_string_equal(text, wanted);
}

static const struct figures three[] = {{10, "train", 30 * MIB, 5 * MIB, 100, 50, 1},
                                       {20, "serve", 10 * MIB, 20 * MIB, 1000, 10, 1},
                                       {30, "Eval", 20 * MIB, 1 * MIB, 0, 0, 1}};

static void rates_are_of_the_time_between_two_looks(void **state) {
    struct live live;
    struct figures one = {7, "a", MIB, 0, 1000, 10, 1};
    (void)state;
    start(&live);
    look(&live, 10, &one, 1);
    const struct live_row *row = live.model.shown[0];
    assert_true(isnan(row->alloc_rate));
    one.allocs = 1500;
    look(&live, 12, &one, 1);
    assert_true(fabs(row->alloc_rate - 250) < 1e-6);
    one.allocs = 3; /* begun anew */
    look(&live, 13, &one, 1);
    assert_true(row->alloc_rate == 0);
    live_view_free(&live);
}

static void histories_keep_the_last_samples(void **state) {
    struct live live;
    double values[LIVE_HISTORY + 5];
    struct figures one = {7, "a", 0, 0, 0, 0, 1};
    (void)state;
    start(&live);
    for (unsigned i = 0; i < LIVE_HISTORY + 3; i++) {
        one.live = (i + 1) * MIB;
        look(&live, 10 + i, &one, 1);
        if (i == 1) {
            assert_int_equal(live_history_values(&live.model.shown[0]->history, LIVE_FIGURE_LIVE, values, 9), 2);
            assert_true(values[0] == (double)MIB && values[1] == 2.0 * (double)MIB);
        }
    }
    const struct live_history *history = &live.model.shown[0]->history;
    assert_int_equal(live_history_values(history, LIVE_FIGURE_LIVE, values, LIVE_HISTORY + 5), LIVE_HISTORY);
    assert_true(values[0] == 4.0 * (double)MIB);
    assert_true(values[LIVE_HISTORY - 1] == (LIVE_HISTORY + 3.0) * (double)MIB);
    assert_int_equal(live_history_values(history, LIVE_FIGURE_RESERVED, values, 1), 1);
    assert_true(values[0] == (LIVE_HISTORY + 3.0) * (double)MIB);
    live_view_free(&live);
}

static void an_ended_process_is_marked_and_goes(void **state) {
    struct live live;
    (void)state;
    start(&live);
    look(&live, 10, three, 3);
    look(&live, 11, three, 2);
    assert_order(&live, "10 30 20");
    assert_string_equal(live_mark(&live, live.model.shown[1]->process).s, "ended 0 ns ago");
    assert_int_equal(live.model.shown[1]->sum.measures.live_bytes, 20 * MIB);
    look(&live, 20, three, 2);
    assert_string_equal(live_mark(&live, live.model.shown[1]->process).s, "ended 9.00 s ago");
    look(&live, 21, three, 2);
    assert_order(&live, "10 20");
    look(&live, 22, three, 3); /* the same again, as after a moment in which it could not be seen */
    assert_order(&live, "10 30 20");
    assert_string_equal(live_mark(&live, live.model.shown[1]->process).s, "");
    live_view_free(&live);
}

static void devices_come_and_go_by_themselves(void **state) {
    struct live live;
    struct figures one = {7, "a", MIB, 0, 10, 0, 0};
    (void)state;
    start(&live);
    look(&live, 10, &one, 1);
    const uint64_t id = live.model.shown[0]->id;
    assert_false(live.model.shown[0]->has_device);
    one.devices = 2;
    look(&live, 11, &one, 1);
    assert_int_equal(live.model.shown_count, 2);
    assert_int_equal(live.model.shown[0]->id, id); /* it is the one without a device before */
    one.devices = 1;
    look(&live, 12, &one, 1);
    assert_int_equal(live.model.shown_count, 1);
    assert_int_equal(live.model.shown[0]->sum.device, 0);
    one.devices = 0;
    look(&live, 13, &one, 1);
    assert_int_equal(live.model.shown_count, 1);
    assert_false(live.model.shown[0]->has_device);
    live_view_free(&live);
}

static void rows_are_sorted_by_any_column_and_back(void **state) {
    static const struct {
        enum live_sort sort;
        const char *order, *inverted;
    } cases[] = {{LIVE_SORT_LIVE, "10 30 20", "20 30 10"},     {LIVE_SORT_CACHED, "20 10 30", "30 10 20"},
                 {LIVE_SORT_RESERVED, "10 20 30", "30 20 10"}, {LIVE_SORT_PEAK, "10 20 30", "30 20 10"},
                 {LIVE_SORT_PID, "10 20 30", "30 20 10"},      {LIVE_SORT_COMMAND, "30 20 10", "10 20 30"},
                 {LIVE_SORT_HITS, "20 10 30", "30 10 20"},     {LIVE_SORT_DEVICE, "10 20 30", "10 20 30"}};
    struct figures four[4];
    struct live live;
    (void)state;
    memcpy(four, three, sizeof(three));
    four[3] = (struct figures){.pid = 5, .command = "", .devices = -1};
    start(&live);
    look(&live, 10, four, 4);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char wanted[32];
        snprintf(wanted, sizeof(wanted), "%s 5", cases[i].order); /* without figures: always last */
        live_model_sort(&live.model, cases[i].sort, false);
        assert_order(&live, wanted);
        snprintf(wanted, sizeof(wanted), "%s 5", cases[i].inverted);
        live_model_sort(&live.model, cases[i].sort, true);
        assert_order(&live, wanted);
    }
    live_view_free(&live);
}

static void counters_are_counted_from_here(void **state) {
    struct live live;
    struct figures two[] = {{7, "a", MIB, 0, 1000, 500, 1}, {8, "late", MIB, 0, 40, 0, 1}};
    (void)state;
    start(&live);
    look(&live, 10, two, 1);
    const struct live_row *row = live.model.shown[0];
    assert_int_equal(row->sum.counters.allocs, 1000);
    type(&live, "c");
    assert_int_equal(row->sum.counters.allocs, 0);
    assert_true(isnan(row->sum.measures.hit_rate));
    assert_int_equal(row->sum.measures.live_bytes, MIB); /* no counter */
    two[0].allocs = 1100;
    two[0].misses = 525;
    look(&live, 11, two, 2);
    assert_int_equal(row->sum.counters.allocs, 100);
    assert_true(fabs(row->sum.measures.hit_rate - 0.75) < 1e-9);
    assert_true(fabs(row->alloc_rate - 100) < 1e-6);
    assert_int_equal(row->sum.figures.trims, 10);
    assert_int_equal(live.model.shown[1]->sum.counters.allocs, 40); /* it began later */
    struct class_sum sum;
    assert_true(derive_class(&live_segment(row->process)->pools[0], 11, &sum));
    assert_int_equal(sum.allocs, 100);
    assert_int_equal(row->process->process.segment->pools[0].cells[0].classes[11].allocs, 1100); /* untouched */
    type(&live, "C");
    assert_int_equal(row->sum.counters.allocs, 1100);
    two[0].allocs = 1110;
    look(&live, 12, two, 2);
    assert_true(fabs(row->alloc_rate - 10) < 1e-6);
    live_view_free(&live);
}

static void a_pool_of_another_life_counts_from_its_start(void **state) {
    const struct figures one = {7, "a", MIB, 0, 1000, 500, 1};
    struct segment *then = make_segment(&one, SECOND), *now = make_segment(&one, 2 * SECOND);
    (void)state;
    struct segment *note = since_note(then);
    struct segment *since = since_make(now, note);
    assert_int_equal(since->pools[0].cells[0].classes[11].allocs, 0);
    since_free(since);
    now->pools[0].record.generation = 2;
    since = since_make(now, note);
    assert_int_equal(since->pools[0].cells[0].classes[11].allocs, 1000);
    since_free(since);
    since_free(note);
    segment_free(then);
    segment_free(now);
}

/* ---- keys ---- */

static void each_key_does_one_thing_and_is_in_the_help(void **state) {
    size_t count;
    const struct live_key_line *lines = live_keys_lines(&count);
    (void)state;
    for (size_t i = 0; i < count; i++) {
        assert_true(lines[i].names[0] != '\0' && lines[i].help[0] != '\0' && lines[i].keys[0] != LIVE_KEY_NONE);
        assert_int_equal(lines[i].brief != NULL, lines[i].pages != 0);
        for (size_t j = 0; j < 4 && lines[i].keys[j] != LIVE_KEY_NONE; j++)
            assert_int_equal(live_keys_action(lines[i].keys[j]), lines[i].action);
    }
    for (int action = LIVE_DO_NOTHING + 1; action <= LIVE_DO_SNAPSHOT; action++) {
        size_t i = 0;
        while (i < count && (int)lines[i].action != action) i++;
        assert_true(i < count);
    }
    assert_int_equal(live_keys_action('x'), LIVE_DO_NOTHING);
    assert_int_equal(live_keys_action(LIVE_KEY_NONE), LIVE_DO_NOTHING);
}

static void the_selection_stays_with_its_process(void **state) {
    struct live live;
    struct figures changed[3];
    (void)state;
    memcpy(changed, three, sizeof(three));
    start(&live);
    look(&live, 10, three, 3);
    live_view_key(&live, 'j');
    assert_int_equal(live.selected, 1); /* 30 */
    changed[2].live = 99 * MIB;
    look(&live, 11, changed, 3);
    assert_order(&live, "30 10 20");
    assert_int_equal(live.selected, 0);
    type(&live, "I");
    assert_int_equal(live.selected, 2);
    type(&live, ">>>>>>>>>>"); /* once around */
    assert_int_equal(live.model.sort, LIVE_SORT_LIVE);
    live_view_key(&live, LIVE_KEY_END);
    live_view_key(&live, LIVE_KEY_DOWN);
    assert_int_equal(live.selected, 2);
    live_view_key(&live, LIVE_KEY_HOME);
    live_view_key(&live, LIVE_KEY_UP);
    assert_int_equal(live.selected, 0);
    live_view_free(&live);
}

static void search_goes_to_what_was_typed(void **state) {
    struct live live;
    (void)state;
    start(&live);
    look(&live, 10, three, 3); /* 10 30 20 */
    type(&live, "/ser");
    assert_int_equal(live.selected, 2);
    live_view_key(&live, LIVE_KEY_ESCAPE);
    assert_int_equal(live.selected, 0);
    type(&live, "/EVA\n"); /* in any case of letters */
    assert_int_equal(live.selected, 1);
    assert_int_equal(live.prompt, LIVE_NO_PROMPT);
    type(&live, "/0\n"); /* all have it: where one is stays */
    assert_int_equal(live.selected, 1);
    type(&live, "n");
    assert_int_equal(live.selected, 2);
    type(&live, "n");
    assert_int_equal(live.selected, 0);
    type(&live, "N");
    assert_int_equal(live.selected, 2);
    type(&live, "/nowhere\n");
    assert_string_equal(live.message, "no process has 'nowhere'");
    assert_int_equal(live.selected, 2);
    live_view_free(&live);
}

static void a_filter_hides_what_does_not_fit(void **state) {
    struct live live;
    (void)state;
    start(&live);
    look(&live, 10, three, 3);
    type(&live, "\\tra");
    assert_order(&live, "10");
    type(&live, "q"); /* part of the filter */
    assert_order(&live, "");
    assert_false(live.over);
    live_view_key(&live, LIVE_KEY_BACKSPACE);
    live_view_key(&live, LIVE_KEY_ENTER);
    look(&live, 11, three, 3);
    assert_order(&live, "10");
    type(&live, "\\x\a\t");
    live_view_key(&live, 0x301);  /* combining */
    live_view_key(&live, 0x202e); /* turns the direction */
    live_view_key(&live, LIVE_KEY_F12);
    assert_string_equal(live.typed, "trax");
    live_view_key(&live, LIVE_KEY_ESCAPE); /* as it was */
    assert_order(&live, "10");
    live_view_key(&live, LIVE_KEY_ESCAPE); /* none any more */
    assert_order(&live, "10 30 20");
    for (unsigned i = 0; i < 2 * LIVE_TYPED_SIZE; i++) live_view_key(&live, i == 0 ? '\\' : 0xe9);
    assert_int_equal(strlen(live.typed), LIVE_TYPED_SIZE - 2); /* whole characters */
    live_view_free(&live);
}

static void enter_opens_and_escape_closes(void **state) {
    static const struct figures two[] = {{10, "train", MIB, 0, 1, 1, 2}, {11, "x", 0, 0, 0, 0, -1}};
    struct live live;
    (void)state;
    start(&live);
    look(&live, 10, two, 2);
    type(&live, "\n");
    assert_int_equal(live.page, LIVE_ONE);
    live_view_key(&live, LIVE_KEY_RIGHT);
    live_view_key(&live, LIVE_KEY_RIGHT);
    assert_int_equal(live.pool, 1);
    type(&live, "h");
    assert_int_equal(live.pool, 0);
    type(&live, "?");
    assert_int_equal(live.page, LIVE_HELP);
    live_view_key(&live, LIVE_KEY_ESCAPE);
    assert_int_equal(live.page, LIVE_ONE);
    live_view_key(&live, LIVE_KEY_ESCAPE);
    assert_int_equal(live.page, LIVE_LIST);
    type(&live, "G\n"); /* the damaged one */
    assert_int_equal(live.page, LIVE_LIST);
    assert_string_equal(live.message, "there are no figures: the segment is damaged: nothing fits");
    type(&live, "g\n");
    look(&live, 11, two, 0);
    assert_int_equal(live.page, LIVE_ONE); /* ended, and still shown */
    look(&live, 30, two, 0);
    assert_int_equal(live.page, LIVE_LIST);
    assert_string_equal(live.message, "the process has ended");
    type(&live, "q");
    assert_true(live.over);
    live_view_free(&live);
}

/* ---- pages ---- */

static void pages_of_any_size_keep_to_it(void **state) {
    static const struct figures many[] = {
        {1, "\x1b[31m\xff\xe2\x80\xae", UINT64_MAX / 2, UINT64_MAX, UINT64_MAX, 1, 32},
        {2, "日本語日本語日本語日本語日本語日本語日", 5 * MIB, MIB, 10, 1, 1},
        {3, "e\xcc\x81 combining", 0, 0, 0, 0, 0},
        {4294967295u, "damaged", 0, 0, 0, 0, -1}};
    static const char *const pages[] = {"", "\n", "?", "c", "\\zzz\n", "/", "Z"};
    (void)state;
    for (size_t page = 0; page < sizeof(pages) / sizeof(pages[0]); page++) {
        struct live live;
        start(&live);
        look(&live, 10, many, 4);
        look(&live, 11, many, 4);
        look(&live, 12, many, 3);
        type(&live, pages[page]);
        for (size_t width = 1; width < 230; width += width < 50 ? 1 : 13)
            for (size_t height = 1; height < 60; height += height < 10 ? 1 : 9) {
                struct canvas canvas;
                canvas_start(&canvas, width, height);
                live_view_draw(&live, &canvas);
                for (size_t row = 0; row < height; row++) {
                    char *text = canvas_row_text(&canvas, row);
                    assert_true(text_width(text) <= width);
                    for (const char *at = text; *at != '\0'; at++) assert_true((unsigned char)*at >= 0x20);
                    free(text);
                }
                live_view_key(&live, LIVE_KEY_PAGE_DOWN);
                canvas_free(&canvas);
            }
        live_view_free(&live);
    }
}

static bool page_has(struct live *live, size_t width, size_t height, const char *part) {
    struct canvas canvas;
    bool has = false;
    canvas_start(&canvas, width, height);
    live_view_draw(live, &canvas);
    for (size_t row = 0; row < height; row++) {
        char *text = canvas_row_text(&canvas, row);
        has |= strstr(text, part) != NULL;
        free(text);
    }
    canvas_free(&canvas);
    return has;
}

static void pages_say_what_there_is(void **state) {
    struct live live;
    (void)state;
    start(&live);
    look(&live, 10, three, 0);
    assert_true(page_has(&live, 80, 24, "no process runs on the pool; start one with: poolstat run -- COMMAND"));
    look(&live, 11, three, 3);
    assert_true(page_has(&live, 80, 24, "train     30.0 MiB 5.00 MiB 35.0 MiB  50.0%"));
    assert_true(page_has(&live, 80, 24, "GPU 0       #=")); /* the line of the device */
    assert_true(page_has(&live, 80, 24, "live 60.0 MiB  cached 26.0 MiB  of 1.00 GiB"));
    assert_true(page_has(&live, 39, 24, "39x24 is too small:"));
    assert_true(page_has(&live, 80, 7, "40x8 is needed"));
    type(&live, "Z");
    assert_true(page_has(&live, 80, 24, "PAUSED"));
    type(&live, "\n");
    assert_true(page_has(&live, 80, 50, ">1    0  plain  30.0 MiB  5.00 MiB  35.0 MiB  50.0%"));
    assert_true(page_has(&live, 80, 50, "oom"));
    look(&live, 12, three, 3);
    type(&live, "c"); /* events are counted from here, too */
    struct figures same = three[0];
    look(&live, 13, &same, 1);
    live.model.counting_since_ns = 14 * SECOND;
    assert_true(page_has(&live, 80, 50, "No events"));
    live_view_free(&live);
}

/* ---- snapshots ---- */

static void put_file(const char *name, const char *text) {
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void assert_file(const char *name, const char *text) {
    char found[16] = "";
    FILE *file = fopen(name, "r");
    assert_non_null(file);
    assert_int_equal(fread(found, 1, sizeof(found) - 1, file), strlen(text));
    fclose(file);
    assert_string_equal(found, text);
}

static void a_snapshot_overwrites_nothing(void **state) {
    struct live live;
    char folder[] = "/tmp/poolstat-live-XXXXXX", names[4][64], *home = get_current_dir_name();
    const time_t now = time(NULL);
    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    for (int i = 0; i < 4; i++) { /* whichever of these seconds it will be */
        const time_t second = now + i;
        struct tm local;
        localtime_r(&second, &local);
        strftime(names[i], sizeof(names[i]), "poolstat-%Y%m%d-%H%M%S.json", &local);
        put_file(names[i], "mine");
    }
    start(&live);
    look(&live, 10, three, 3);
    live_view_key(&live, LIVE_KEY_F12);
    assert_true(strncmp(live.message, "saved as poolstat-", 18) == 0);
    assert_string_equal(live.message + strlen(live.message) - 7, "-2.json");
    assert_int_equal(access(live.message + strlen("saved as "), R_OK), 0);
    for (int i = 0; i < 4; i++) assert_file(names[i], "mine");
    for (int i = 0; i < 4; i++) unlink(names[i]);
    unlink(live.message + strlen("saved as "));
    assert_int_equal(chdir(home), 0);
    assert_int_equal(rmdir(folder), 0);
    free(home);
    live_view_free(&live);
}

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_stays_in_its_columns),
        cmocka_unit_test(wide_characters_are_never_halved),
        cmocka_unit_test(rows_are_copied_into_a_place),
        cmocka_unit_test(bars_show_the_parts_of_the_whole),
        cmocka_unit_test(little_is_seen_and_nonsense_stays_in_the_bar),
        cmocka_unit_test(histories_stand_at_the_right_and_on_the_ground),
        cmocka_unit_test(heat_has_a_level_for_each_sixteenth),
        cmocka_unit_test(rates_are_of_the_time_between_two_looks),
        cmocka_unit_test(histories_keep_the_last_samples),
        cmocka_unit_test(an_ended_process_is_marked_and_goes),
        cmocka_unit_test(devices_come_and_go_by_themselves),
        cmocka_unit_test(rows_are_sorted_by_any_column_and_back),
        cmocka_unit_test(counters_are_counted_from_here),
        cmocka_unit_test(a_pool_of_another_life_counts_from_its_start),
        cmocka_unit_test(each_key_does_one_thing_and_is_in_the_help),
        cmocka_unit_test(the_selection_stays_with_its_process),
        cmocka_unit_test(search_goes_to_what_was_typed),
        cmocka_unit_test(a_filter_hides_what_does_not_fit),
        cmocka_unit_test(enter_opens_and_escape_closes),
        cmocka_unit_test(pages_of_any_size_keep_to_it),
        cmocka_unit_test(pages_say_what_there_is),
        cmocka_unit_test(a_snapshot_overwrites_nothing),
    };
    text_start();
    return testing_main(tests, sizeof(tests) / sizeof(tests[0]), argc, argv);
}
