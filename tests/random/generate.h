/* SPDX-License-Identifier: MIT
 *
 * What the parts of the generator have in common: its state, and how operations are begun and offered.
 */
#ifndef RANDOM_GENERATE_H
#define RANDOM_GENERATE_H

#include "model.h"

enum { SIZES = 6 };

struct generator {
    struct model model;
    uint64_t random;
    unsigned thread; /* whose turn it is */
    bool creates_contexts, resets, captures, holds, leans;
    bool pools, peers, marks, wrong_frees, strange_frees, doors, shares;
    unsigned own_family; /* percent of calls by the family of per-thread default streams */
    uint64_t sizes[SIZES];
    uint16_t blocks;           /* that were ever allocated */
    uint8_t homes[BLOCKS_MAX]; /* the stream that used the block last, or is to */
};

uint64_t next(struct generator *generator);
unsigned below(struct generator *generator, unsigned bound);
bool chance(struct generator *generator, unsigned percent);

uint8_t random_context(struct generator *generator);
/* One that the thread can name and that captures nothing. */
uint8_t random_stream(struct generator *generator, unsigned context);
/* A live block, mostly a young one; less than 0: none was found. */
int random_block(struct generator *generator);
/* Of those that are alive, of the device; it has a default one. */
uint8_t random_memory_pool(struct generator *generator, unsigned device);

struct operation begin(struct generator *generator, unsigned kind, unsigned context);
struct operation begin_on(struct generator *generator, unsigned kind, unsigned stream);

/* Offers it, with what makes it correct before it. */
bool offer(struct generator *generator, const struct operation *operation);

/* ---- generate_foreign.c: what few programs do ---- */

void propose_memory_pool(struct generator *generator);
void propose_mark(struct generator *generator);
void propose_wrong_free(struct generator *generator);
void propose_sharing(struct generator *generator);

#endif
