/* SPDX-License-Identifier: MIT
 *
 * The race detector against random programs. Each is made so that all is ordered; then one of its orders is taken out
 * that exactly one pair of its steps needed, as a search through the program's own edges says, which knows nothing of
 * clocks. The detector must find that pair, and nothing in the program before. RACES_SEED and RACES_COUNT change the
 * programs (SIM_DEVICES=2).
 */
#include <stdlib.h>

#include "races.h"

enum {
    STEPS_MAX = 512,
    WORDS = STEPS_MAX / 64,
    SLOTS = 6,
    SLOT_BYTES = 1024,
    GRAIN = 64,
    EVENTS = 5,
    STREAMS = 8,
    CONTEXTS = 2,
    WANTED_STEPS = 120,
    PROGRAMS = 1000
};

enum step_kind {
    USE,
    RECORD,
    WAIT,
    RECORD_CONTEXT,
    WAIT_CONTEXT,
    SYNCHRONISE_EVENT,
    SYNCHRONISE_STREAM,
    SYNCHRONISE_CONTEXT,
    ALLOCATE, /* the rest are notes */
    ALLOCATE_ASYNC,
    FREE,
    FREE_ASYNC
};

struct step {
    enum step_kind kind;
    int stream, event, slot;
    int life; /* of the slot */
    int from, to;
    bool writes;
    bool slow;
    bool left_out;
};

struct program {
    struct step steps[STEPS_MAX];
    int count;
    int lives[SLOTS];
    bool live[SLOTS];
    uint64_t before[STEPS_MAX][WORDS]; /* for each step, the set of those that it comes after */
    int last_record[EVENTS];           /* before the end; -1: none */
};

/* Stream 0 is the legacy stream of context 0, 1 the thread's own; the rest are made, two of them on the other device.
 */
static const struct stream_kind {
    int context;
    bool legacy, blocking;
} kinds[STREAMS] = {
    {0, true, false},  {0, false, true},  {0, false, true},  {0, false, true},
    {0, false, false}, {0, false, false}, {1, false, false}, {1, false, true},
};

/* A generator that is the same everywhere. */
static uint64_t random_state;

static uint32_t random_below(uint32_t limit) {
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((random_state >> 33) % limit);
}

static bool chance(uint32_t percent) {
    return random_below(100) < percent;
}

/* What orders what. */

static bool comes_after(const struct program *program, int later, int earlier) {
    return (program->before[later][earlier / 64] >> (earlier % 64) & 1) != 0;
}

static bool is_note(const struct step *step) {
    return step->kind >= ALLOCATE;
}

static bool is_in_stream(const struct step *step) {
    return step->kind == USE || step->kind == RECORD || step->kind == WAIT || step->kind == ALLOCATE_ASYNC ||
           step->kind == FREE_ASYNC;
}

static bool is_synchronise(const struct step *step) {
    return step->kind >= SYNCHRONISE_EVENT && step->kind <= SYNCHRONISE_CONTEXT;
}

static int context_of(const struct step *step) {
    return step->kind == RECORD_CONTEXT || step->kind == WAIT_CONTEXT || step->kind == SYNCHRONISE_CONTEXT
               ? step->stream
               : kinds[step->stream].context;
}

/* Does a step that the stream was given come before the next one of `stream` by the rules of streams? */
static bool streams_order(int earlier, int stream) {
    const struct stream_kind *const a = &kinds[earlier], *const b = &kinds[stream];
    if (earlier == stream) return true;
    return a->context == b->context && ((a->legacy && b->blocking) || (a->blocking && b->legacy));
}

/* Is there an edge from step `i` to the later step `j`, `record` being what j waits for? */
static bool edge(const struct program *program, int i, int j, int record) {
    const struct step *const a = &program->steps[i], *const b = &program->steps[j];
    if (is_synchronise(a)) return true;
    if (i == record) return true;
    if (a->kind == WAIT_CONTEXT)
        return b->kind != SYNCHRONISE_EVENT && b->kind != SYNCHRONISE_STREAM && b->kind != ALLOCATE &&
               b->kind != FREE && context_of(a) == context_of(b);
    if (!is_in_stream(a)) return false;
    switch (b->kind) {
    case USE:
    case RECORD:
    case WAIT:
    case ALLOCATE_ASYNC:
    case FREE_ASYNC:
        return streams_order(a->stream, b->stream);
    case RECORD_CONTEXT:
    case SYNCHRONISE_CONTEXT:
        return context_of(a) == context_of(b);
    case SYNCHRONISE_STREAM:
        return a->stream == b->stream || (kinds[b->stream].legacy && streams_order(a->stream, b->stream));
    default:
        return false;
    }
}

/* What a step comes after. A note in a stream comes after much, but what comes after the note comes after it alone. */
static void search_step(struct program *program, int j) {
    const struct step *const step = &program->steps[j];
    const bool waits = step->kind == WAIT || step->kind == WAIT_CONTEXT || step->kind == SYNCHRONISE_EVENT;
    const int record = waits ? program->last_record[step->event] : -1;
    uint64_t *const before = program->before[j];
    memset(before, 0, sizeof program->before[j]);
    for (int i = 0; i < j; i++) {
        if (program->steps[i].left_out || !edge(program, i, j, record)) continue;
        before[i / 64] |= UINT64_C(1) << (i % 64);
        if (is_note(&program->steps[i])) continue;
        for (int word = 0; word < WORDS; word++) before[word] |= program->before[i][word];
    }
    if (step->kind == RECORD || step->kind == RECORD_CONTEXT) program->last_record[step->event] = j;
}

static void search(struct program *program) {
    for (int i = 0; i < EVENTS; i++) program->last_record[i] = -1;
    for (int j = 0; j < program->count; j++)
        if (!program->steps[j].left_out) search_step(program, j);
}

/* Pairs that must be ordered. */

static bool overlap(const struct step *a, const struct step *b) {
    return a->from < b->to && b->from < a->to;
}

/* What the pair is if it is not ordered; SIM_RACE_KINDS: it need not be. */
static enum sim_race_kind pair_kind(const struct step *a, const struct step *b) {
    if (a->slot != b->slot) return SIM_RACE_KINDS;
    if (a->kind == USE && b->kind == USE)
        return overlap(a, b) && (a->writes || b->writes) ? SIM_RACE_CONFLICT : SIM_RACE_KINDS;
    if (a->kind == USE && (b->kind == ALLOCATE || b->kind == ALLOCATE_ASYNC)) return SIM_RACE_GIVEN_EARLY;
    if ((a->kind == USE || a->kind == ALLOCATE_ASYNC) && b->kind == FREE_ASYNC && a->life == b->life)
        return SIM_RACE_FREED_EARLY;
    if (a->kind == ALLOCATE_ASYNC && b->kind == USE && a->life == b->life) return SIM_RACE_USED_EARLY;
    return SIM_RACE_KINDS;
}

static bool uses_memory(const struct step *step) {
    return step->kind == USE || is_note(step);
}

struct pair {
    int earlier, later;
    enum sim_race_kind kind;
};

/* Unordered pairs whose later step is `j`; writes down the last. */
static int races_of_step(const struct program *program, int j, struct pair *pair) {
    int races = 0;
    const struct step *const b = &program->steps[j];
    for (int i = 0; uses_memory(b) && i < j; i++) {
        const struct step *const a = &program->steps[i];
        if (a->left_out || !uses_memory(a) || comes_after(program, j, i)) continue;
        const enum sim_race_kind kind = pair_kind(a, b);
        if (kind == SIM_RACE_KINDS) continue;
        *pair = (struct pair){i, j, kind};
        races++;
    }
    return races;
}

static int races_of(struct program *program, struct pair *pair) {
    int races = 0;
    search(program);
    for (int j = 0; j < program->count; j++)
        if (!program->steps[j].left_out) races += races_of_step(program, j, pair);
    return races;
}

/* Making a program. */

static void add(struct program *program, struct step step) {
    assert_in_range(program->count, 0, STEPS_MAX - 1);
    program->steps[program->count] = step;
    search_step(program, program->count++);
}

/* An order between a step that was made and the next one of a stream, or of the host. */
static void add_order(struct program *program, int earlier, const struct step *later) {
    const struct step *const a = &program->steps[earlier];
    const int event = (int)random_below(EVENTS);
    const bool host = later->kind == ALLOCATE || chance(15);
    if (host && chance(30)) {
        add(program, (struct step){.kind = SYNCHRONISE_STREAM, .stream = a->stream});
        return;
    }
    if (host && chance(10)) {
        add(program, (struct step){.kind = SYNCHRONISE_CONTEXT, .stream = context_of(a)});
        return;
    }
    if (chance(15))
        add(program, (struct step){.kind = RECORD_CONTEXT, .stream = context_of(a), .event = event});
    else
        add(program, (struct step){.kind = RECORD, .stream = a->stream, .event = event});
    if (host)
        add(program, (struct step){.kind = SYNCHRONISE_EVENT, .event = event});
    else if (chance(10))
        add(program, (struct step){.kind = WAIT_CONTEXT, .stream = kinds[later->stream].context, .event = event});
    else
        add(program, (struct step){.kind = WAIT, .stream = later->stream, .event = event});
}

/* Adds the step, and before it what orders it. */
static void add_ordered(struct program *program, struct step step) {
    struct pair pair;
    for (add(program, step); races_of_step(program, program->count - 1, &pair) > 0; add(program, step)) {
        program->count--;
        add_order(program, pair.earlier, &step);
    }
}

static void add_use(struct program *program, int slot) {
    struct step step = {.kind = USE, .stream = (int)random_below(STREAMS), .slot = slot, .life = program->lives[slot]};
    step.from = (int)random_below(SLOT_BYTES / GRAIN) * GRAIN;
    step.to = step.from + GRAIN * (1 + (int)random_below((uint32_t)(SLOT_BYTES - step.from) / GRAIN));
    step.writes = chance(50);
    step.slow = chance(3);
    add_ordered(program, step);
}

static void add_memory_step(struct program *program, int slot) {
    const bool async = chance(60);
    const int stream = (int)random_below(STREAMS);
    enum step_kind kind;
    if (program->live[slot]) {
        kind = async ? FREE_ASYNC : FREE;
    } else {
        kind = async ? ALLOCATE_ASYNC : ALLOCATE;
        program->lives[slot]++;
    }
    program->live[slot] = !program->live[slot];
    add_ordered(program, (struct step){.kind = kind, .stream = stream, .slot = slot, .life = program->lives[slot]});
}

/* A wait for an event that was never recorded is nothing, not even in the legacy stream. */
static void add_noise(struct program *program) {
    const int event = (int)random_below(EVENTS), stream = (int)random_below(STREAMS);
    const bool record = chance(60) || program->last_record[event] < 0;
    add(program, (struct step){.kind = record ? RECORD : WAIT, .stream = stream, .event = event});
}

static void make(struct program *program, uint64_t seed) {
    memset(program, 0, sizeof *program);
    search(program);
    random_state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    while (program->count < WANTED_STEPS) {
        const int slot = (int)random_below(SLOTS);
        if (!program->live[slot] || chance(15))
            add_memory_step(program, slot);
        else if (chance(15))
            add_noise(program);
        else
            add_use(program, slot);
    }
}

static bool is_order(const struct step *step) {
    return step->kind == WAIT || step->kind == WAIT_CONTEXT || is_synchronise(step);
}

/* Leaves out one order, from a random place on, without which exactly one pair is unordered. False if there is none. */
static bool plant(struct program *program, struct pair *pair) {
    const int start = (int)random_below((uint32_t)program->count);
    for (int i = 0; i < program->count; i++) {
        struct step *const step = &program->steps[(start + i) % program->count];
        if (!is_order(step)) continue;
        step->left_out = true;
        if (races_of(program, pair) == 1) return true;
        step->left_out = false;
    }
    return false;
}

/* Running a program. */

static struct {
    CUcontext contexts[CONTEXTS];
    CUstream streams[STREAMS];
    CUdeviceptr memory;
} machine;

static void machine_start(void) {
    machine.contexts[0] = fresh_context();
    CHECK(cuMemAlloc(&machine.memory, SLOTS * SLOT_BYTES));
    machine.streams[1] = CU_STREAM_PER_THREAD;
    for (int i = 2; i < STREAMS; i++) {
        if (kinds[i].context == 1 && machine.contexts[1] == NULL) {
            CHECK(cuDevicePrimaryCtxRetain(&machine.contexts[1], 1));
            CHECK(cuCtxSetCurrent(machine.contexts[1]));
            CHECK(cuCtxEnablePeerAccess(machine.contexts[0], 0));
        }
        machine.streams[i] = new_stream(kinds[i].blocking ? 0 : CU_STREAM_NON_BLOCKING);
    }
    CHECK(cuCtxSetCurrent(machine.contexts[0]));
}

static void run_use(const struct step *step, int number) {
    const struct sim_range range = {.address = machine.memory + (CUdeviceptr)(step->slot * SLOT_BYTES + step->from),
                                    .bytes = (size_t)(step->to - step->from),
                                    .writes = step->writes};
    const struct sim_kernel kernel = {.ranges = &range,
                                      .range_count = 1,
                                      .microseconds = step->slow ? 5 : 0,
                                      .name = "step",
                                      .number = (uint64_t)number};
    CHECK((CUresult)sim_launch(&kernel, machine.streams[step->stream]));
}

/* An event belongs to a context: each has a twin in the other. */
static void run_step(const struct step *step, int number, CUevent events[EVENTS][CONTEXTS], int recorded[EVENTS]) {
    CUstream stream = machine.streams[step->stream];
    const CUdeviceptr slot = machine.memory + (CUdeviceptr)(step->slot * SLOT_BYTES);
    switch (step->kind) {
    case USE:
        run_use(step, number);
        break;
    case RECORD:
        recorded[step->event] = kinds[step->stream].context;
        CHECK(cuEventRecord(events[step->event][recorded[step->event]], stream));
        break;
    case RECORD_CONTEXT:
        recorded[step->event] = step->stream;
        CHECK(cuCtxRecordEvent(machine.contexts[step->stream], events[step->event][step->stream]));
        break;
    case WAIT:
        CHECK(cuStreamWaitEvent(stream, events[step->event][recorded[step->event]], 0));
        break;
    case WAIT_CONTEXT:
        CHECK(cuCtxWaitEvent(machine.contexts[step->stream], events[step->event][recorded[step->event]]));
        break;
    case SYNCHRONISE_EVENT:
        CHECK(cuEventSynchronize(events[step->event][recorded[step->event]]));
        break;
    case SYNCHRONISE_STREAM:
        CHECK(cuStreamSynchronize(stream));
        break;
    case SYNCHRONISE_CONTEXT:
        CHECK(cuCtxSetCurrent(machine.contexts[step->stream]));
        CHECK(cuCtxSynchronize());
        CHECK(cuCtxSetCurrent(machine.contexts[0]));
        break;
    case ALLOCATE:
        CHECK((CUresult)sim_block_allocated(slot, SLOT_BYTES));
        break;
    case ALLOCATE_ASYNC:
        CHECK((CUresult)sim_block_allocated_async(slot, SLOT_BYTES, stream));
        break;
    case FREE:
        CHECK((CUresult)sim_block_freed(slot));
        break;
    case FREE_ASYNC:
        CHECK((CUresult)sim_block_freed_async(slot, stream));
        break;
    }
}

static void run(const struct program *program) {
    CUevent events[EVENTS][CONTEXTS];
    int recorded[EVENTS] = {0};
    for (int context = 0; context < CONTEXTS; context++) {
        CHECK(cuCtxSetCurrent(machine.contexts[context]));
        for (int i = 0; i < EVENTS; i++) CHECK(cuEventCreate(&events[i][context], CU_EVENT_DISABLE_TIMING));
    }
    CHECK(cuCtxSetCurrent(machine.contexts[0]));
    sim_races_start();
    for (int i = 0; i < program->count; i++)
        if (!program->steps[i].left_out) run_step(&program->steps[i], i, events, recorded);
    sim_races_stop();
    for (int i = 0; i < EVENTS * CONTEXTS; i++) CHECK(cuEventDestroy(events[i / CONTEXTS][i % CONTEXTS]));
}

/* Judging. */

static bool side_is(const struct sim_race_side *side, const struct program *program, int number) {
    const struct step *const step = &program->steps[number];
    if (step->kind == USE) return side->name != NULL && side->number == (uint64_t)number;
    return side->name == NULL && side->life != 0 &&
           side->address == machine.memory + (CUdeviceptr)(step->slot * SLOT_BYTES);
}

static void found_nothing(uint64_t seed) {
    struct sim_race race;
    char text[512];
    if (sim_races(&race, 1) == 0) return;
    sim_race_text(&race, text, sizeof text);
    fail_msg("seed %llu is ordered, but: %s", (unsigned long long)seed, text);
}

static void found(const struct program *program, const struct pair *pair, uint64_t seed) {
    struct sim_race race;
    char text[512] = "nothing";
    const size_t races = sim_races(&race, 1);
    if (races == 1 && race.kind == pair->kind && side_is(&race.earlier, program, pair->earlier) &&
        side_is(&race.later, program, pair->later))
        return;
    if (races > 0) sim_race_text(&race, text, sizeof text);
    fail_msg("seed %llu has a race of kind %d between steps %d and %d; found %zu: %s", (unsigned long long)seed,
             (int)pair->kind, pair->earlier, pair->later, races, text);
}

static uint64_t setting(const char *name, uint64_t otherwise) {
    const char *const text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void a_race_planted_in_a_random_program_is_found(void **state) {
    (void)state;
    const uint64_t first = setting("RACES_SEED", 1), wanted = setting("RACES_COUNT", PROGRAMS);
    uint64_t kinds_seen[SIM_RACE_KINDS] = {0}, planted = 0, seed = first;
    machine_start();
    for (; planted < wanted; seed++) {
        struct program program;
        struct pair pair;
        make(&program, seed);
        assert_int_equal(races_of(&program, &pair), 0);
        if (!plant(&program, &pair)) continue;
        planted++;
        kinds_seen[pair.kind]++;
        run(&program);
        found(&program, &pair, seed);
        for (int i = 0; i < program.count; i++) program.steps[i].left_out = false;
        run(&program);
        found_nothing(seed);
    }
    print_message(
        "# %llu programs, seeds %llu to %llu: %llu conflicts, %llu given early, %llu used early, "
        "%llu freed early\n",
        (unsigned long long)planted, (unsigned long long)first, (unsigned long long)seed - 1,
        (unsigned long long)kinds_seen[SIM_RACE_CONFLICT], (unsigned long long)kinds_seen[SIM_RACE_GIVEN_EARLY],
        (unsigned long long)kinds_seen[SIM_RACE_USED_EARLY], (unsigned long long)kinds_seen[SIM_RACE_FREED_EARLY]);
    for (int kind = 0; kind < SIM_RACE_KINDS && wanted >= PROGRAMS; kind++)
        if (kind != SIM_RACE_GIVEN_TWICE && kind != SIM_RACE_USED_FREED && kind != SIM_RACE_NOT_ALLOCATED)
            assert_true(kinds_seen[kind] >= PROGRAMS / 50);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_race_planted_in_a_random_program_is_found),
};
TESTING_MAIN(tests)
