/* SPDX-License-Identifier: MIT
 *
 * Races that were found: the first ones are kept, each pair once, all are counted.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "driver.h"
#include "race.h"

enum { RACES_KEPT = 256, LINE_BYTES = 512 };

static struct sim_race races[RACES_KEPT];
static size_t race_count;

void race_report_reset(void) {
    race_count = 0;
}

static bool is_same_side(const struct sim_race_side *a, const struct sim_race_side *b) {
    return a->stream == b->stream && a->sequence == b->sequence && a->life == b->life;
}

static bool is_known(const struct sim_race *race) {
    for (size_t i = 0; i < race_count && i < RACES_KEPT; i++)
        if (races[i].kind == race->kind && is_same_side(&races[i].earlier, &race->earlier) &&
            is_same_side(&races[i].later, &race->later))
            return true;
    return false;
}

static void print(const struct sim_race *race) {
    const int before = errno;
    char line[LINE_BYTES];
    sim_race_text(race, line, sizeof line);
    fprintf(stderr, "simulated CUDA: race: %s\n", line);
    errno = before;
}

void race_report(enum sim_race_kind kind, const struct race_use *earlier, const struct race_use *later) {
    struct sim_race race = {.kind = kind, .later = later->side};
    if (earlier != NULL) race.earlier = earlier->side;
    if (is_known(&race)) return;
    if (race_count < RACES_KEPT) races[race_count] = race;
    race_count++;
    if (settings.races > 1) print(&race);
}

size_t sim_races(struct sim_race *out, size_t room) {
    pthread_mutex_lock(&race_lock);
    const size_t found = race_count, kept = found < RACES_KEPT ? found : RACES_KEPT;
    if (room > 0) memcpy(out, races, (kept < room ? kept : room) * sizeof(races[0]));
    pthread_mutex_unlock(&race_lock);
    return found;
}

/* Around the earlier side. */
static const struct {
    const char *before, *between;
} sentences[SIM_RACE_KINDS] = {
    [SIM_RACE_CONFLICT] = {"nothing orders ", " and "},
    [SIM_RACE_GIVEN_EARLY] = {"not known to have ended: ", ", at "},
    [SIM_RACE_GIVEN_TWICE] = {"still live from ", ": what comes from "},
    [SIM_RACE_USED_EARLY] = {"nothing orders after ", ": "},
    [SIM_RACE_FREED_EARLY] = {"nothing orders before its free ", ": "},
    [SIM_RACE_USED_FREED] = {"after ", " comes "},
    [SIM_RACE_NOT_ALLOCATED] = {"", "not all in blocks: "},
};

static void side_text(const struct sim_race_side *side, char *text, size_t size) {
    char name[96] = "", stream[64] = "", life[48] = "";
    const bool use =
        strcmp(side->what, "kernel") == 0 || strcmp(side->what, "copy") == 0 || strcmp(side->what, "fill") == 0;
    if (side->name != NULL) snprintf(name, sizeof name, " %s %" PRIu64, side->name, side->number);
    if (side->stream != 0)
        snprintf(stream, sizeof stream, " (stream %" PRIu64 ", %" PRIu64 ")", side->stream, side->sequence);
    if (side->life != 0) snprintf(life, sizeof life, " of block %" PRIu64, side->life);
    snprintf(text, size, "%s%s%s%s %zu bytes at 0x%" PRIx64 "%s", side->what, name, stream,
             !use           ? ","
             : side->writes ? " that writes"
                            : " that reads",
             side->bytes, side->address, life);
}

int sim_race_text(const struct sim_race *race, char *text, size_t size) {
    char earlier[LINE_BYTES / 2] = "", later[LINE_BYTES / 2] = "";
    if (race->earlier.what != NULL) side_text(&race->earlier, earlier, sizeof earlier);
    if (race->later.what != NULL) side_text(&race->later, later, sizeof later);
    return snprintf(text, size, "%s%s%s%s", sentences[race->kind].before, earlier, sentences[race->kind].between,
                    later);
}
