/* SPDX-License-Identifier: MIT
 *
 * What few programs do: memory pools of their own, marks on blocks, wrong frees, memory for other processes.
 */
#include "generate.h"

enum { KEEP_MOST_MB = 64 };

/* As large as a block that was just freed, where that was. */
static void allocate_again(struct generator *generator, unsigned freed) {
    const struct block_state *block = &generator->model.blocks[freed];
    if (generator->blocks == BLOCKS_MAX) return;
    const uint8_t stream = random_stream(generator, block->async ? block->device : block->context);
    struct operation operation =
        block->async ? begin_on(generator, DO_ALLOC_ASYNC, stream) : begin(generator, DO_ALLOC, block->context);
    operation.bytes = block->bytes;
    operation.block = generator->blocks;
    if (!model_offer(&generator->model, &operation)) return;
    generator->homes[generator->blocks++] = stream;
    struct operation use = begin_on(generator, DO_KERNEL, stream);
    use.touches[use.touch_count++] = (struct touch){.block = operation.block, .writes = true};
    offer(generator, &use);
}

/* ---- the program's own memory pools ---- */

static void create_memory_pool(struct generator *generator, unsigned device) {
    struct operation operation = begin(generator, DO_POOL_CREATE, random_context(generator));
    operation.other = (uint8_t)device;
    operation.memory_pool = (uint8_t)(DEVICES_MAX + below(generator, MEMORY_POOLS_MAX - DEVICES_MAX));
    if (!model_offer(&generator->model, &operation) || chance(generator, 50)) return;
    operation.kind = DO_POOL_SET;
    model_offer(&generator->model, &operation);
}

static int block_of(struct generator *generator, unsigned memory_pool) {
    for (unsigned tries = 0; tries < 8; tries++) {
        const int block = random_block(generator);
        if (block >= 0 && generator->model.blocks[block].memory_pool == memory_pool) return block;
    }
    return -1;
}

/* One of the pool as the current one, large enough to want a segment. */
static int new_block_of(struct generator *generator, const struct operation *set) {
    struct operation operation = *set;
    const unsigned device = generator->model.memory_pools[set->memory_pool].device;
    operation.kind = DO_POOL_SET;
    if (generator->blocks == BLOCKS_MAX || !model_offer(&generator->model, &operation)) return -1;
    const uint8_t stream = random_stream(generator, device);
    operation = begin_on(generator, DO_ALLOC_ASYNC, stream);
    operation.bytes = (1 << 20) + below(generator, 3 << 20);
    operation.block = generator->blocks;
    if (!model_offer(&generator->model, &operation)) return -1;
    generator->homes[generator->blocks++] = stream;
    return operation.block;
}

/* A device gets access and uses a block of the pool; often it frees it too, and others may be given it too early. */
static void give_access(struct generator *generator, struct operation operation) {
    const struct model *model = &generator->model;
    operation.kind = DO_POOL_ACCESS;
    operation.other = (uint8_t)below(generator, model->program->devices);
    if (!model_offer(&generator->model, &operation)) return;
    const bool fresh = chance(generator, 70);
    const int block = fresh ? new_block_of(generator, &operation) : block_of(generator, operation.memory_pool);
    if (block < 0) return;
    const uint8_t stream = random_stream(generator, operation.other);
    struct operation use = begin_on(generator, DO_KERNEL, stream);
    use.touches[use.touch_count++] = (struct touch){.block = (uint16_t)block, .writes = fresh || chance(generator, 50)};
    if (!offer(generator, &use)) return;
    generator->homes[block] = stream;
    use = begin_on(generator, DO_FREE_ASYNC, stream);
    use.block = (uint16_t)block;
    if (chance(generator, 30) || !model_offer(&generator->model, &use)) return;
    for (unsigned times = 1 + below(generator, 4); times > 0; times--) allocate_again(generator, (unsigned)block);
}

void propose_memory_pool(struct generator *generator) {
    static const uint8_t kinds[] = {DO_POOL_CREATE, DO_POOL_SET,    DO_POOL_SET,    DO_POOL_ACCESS, DO_POOL_ACCESS,
                                    DO_POOL_ACCESS, DO_POOL_TRIM,   DO_POOL_TRIM,   DO_POOL_LOOK,   DO_POOL_LOOK,
                                    DO_POOL_ACCESS, DO_POOL_ADJUST, DO_POOL_DESTROY};
    const unsigned device = chance(generator, 60) ? 0 : below(generator, generator->model.program->devices);
    struct operation operation = begin(generator, kinds[below(generator, sizeof kinds)], random_context(generator));
    operation.memory_pool = chance(generator, 15) ? (uint8_t)device : random_memory_pool(generator, device);
    /* As long as the device has none, one is made, mostly. */
    if (operation.kind == DO_POOL_CREATE || (operation.memory_pool == device && chance(generator, 70))) {
        create_memory_pool(generator, device);
        return;
    }
    if (operation.kind == DO_POOL_ACCESS) {
        give_access(generator, operation);
        return;
    }
    if (operation.kind == DO_POOL_ADJUST) {
        operation.other = (uint8_t)below(generator, ADJUSTMENTS);
        operation.bytes = chance(generator, 30) ? UINT64_MAX : next(generator) % (KEEP_MOST_MB << 20);
    }
    if (operation.kind == DO_POOL_TRIM && chance(generator, 50))
        operation.bytes = next(generator) % (KEEP_MOST_MB << 20);
    model_offer(&generator->model, &operation);
}

/* ---- marks and wrong frees ---- */

void propose_mark(struct generator *generator) {
    const int block = random_block(generator);
    if (block < 0) return;
    struct operation operation = begin(generator, DO_MARK, generator->model.blocks[block].context);
    operation.block = (uint16_t)block;
    operation.offset = next(generator);
    model_offer(&generator->model, &operation);
}

/* Of a freed block too, one of the last. */
static int random_freed_block(struct generator *generator) {
    for (unsigned tries = 0; tries < 16 && generator->blocks > 0; tries++) {
        const unsigned span = generator->blocks < 32 ? generator->blocks : 32;
        const unsigned block = generator->blocks - 1 - below(generator, span);
        if (generator->model.blocks[block].life == BLOCK_FREED) return (int)block;
    }
    return -1;
}

void propose_wrong_free(struct generator *generator) {
    const unsigned wrong = below(generator, WRONG_FREES);
    const int block = wrong == WRONG_TWICE ? random_freed_block(generator) : random_block(generator);
    if (block < 0) return;
    const uint8_t context = random_context(generator);
    struct operation operation = begin_on(generator, DO_FREE_WRONG, random_stream(generator, context));
    operation.block = (uint16_t)block;
    operation.other = (uint8_t)wrong;
    operation.waits = generator->model.program->settings.async && wrong != WRONG_THREAD && chance(generator, 40);
    /* Odd, so that it is no block's, or next to nothing. */
    operation.offset = next(generator) >> below(generator, 60) | 1;
    if (!model_offer(&generator->model, &operation) || wrong != WRONG_INTERIOR || chance(generator, 50)) return;
    const uint8_t home = generator->model.blocks[block].context;
    struct operation check = begin_on(generator, DO_READ_BACK, random_stream(generator, home));
    check.touches[check.touch_count++] = (struct touch){.block = (uint16_t)block};
    offer(generator, &check);
}

/* ---- memory for other processes ---- */

static void open_export(struct generator *generator, unsigned exported) {
    struct operation operation = begin(generator, DO_OPEN, random_context(generator));
    operation.exported = (uint8_t)exported;
    operation.importer = (uint8_t)below(generator, IMPORTERS_MAX);
    operation.strange = chance(generator, 35);
    for (unsigned times = chance(generator, 25) ? 2 : 1; times > 0; times--) {
        operation.opening = (uint8_t)below(generator, OPENINGS_MAX);
        model_offer(&generator->model, &operation);
    }
}

static void export_block(struct generator *generator) {
    const int block = random_block(generator);
    if (block < 0) return;
    struct operation operation = begin(generator, DO_EXPORT, generator->model.blocks[block].context);
    if (!generator->model.contexts[operation.context].alive) operation.context = random_context(generator);
    operation.block = (uint16_t)block;
    operation.exported = (uint8_t)below(generator, EXPORTS_MAX);
    operation.offset = chance(generator, 50) ? next(generator) : 0;
    operation.waits = chance(generator, 20);
    if (!model_offer(&generator->model, &operation)) return;
    if (chance(generator, 75))
        open_export(generator, chance(generator, 80) ? operation.exported : below(generator, EXPORTS_MAX));
}

static int random_opening(struct generator *generator) {
    for (unsigned tries = 0; tries < 24; tries++) {
        const unsigned opening = below(generator, OPENINGS_MAX);
        if (generator->model.openings[opening].open) return (int)opening;
    }
    return -1;
}

static void use_opening(struct generator *generator, unsigned opening) {
    const struct opening_state *opened = &generator->model.openings[opening];
    struct operation operation = begin(generator, DO_USE, random_context(generator));
    operation.opening = (uint8_t)opening;
    operation.importer = opened->importer;
    const bool fresh = generator->model.blocks[opened->block].stamp == 0;
    operation.touches[operation.touch_count++] =
        (struct touch){.block = opened->block, .writes = fresh || chance(generator, 60)};
    offer(generator, &operation);
}

/* While it is open elsewhere, which uses it before and later; between, others may be given it too early. */
static void free_opened(struct generator *generator, unsigned opening) {
    const unsigned block = generator->model.openings[opening].block;
    const struct block_state *freed = &generator->model.blocks[block];
    if (freed->life != BLOCK_LIVE) return;
    use_opening(generator, opening);
    const uint8_t stream = random_stream(generator, freed->context);
    struct operation operation = generator->model.program->settings.async && chance(generator, 20)
                                     ? begin_on(generator, DO_FREE_ASYNC, stream)
                                     : begin(generator, DO_FREE, freed->context);
    operation.block = (uint16_t)block;
    if (offer(generator, &operation) && chance(generator, 50)) allocate_again(generator, block);
}

/* A handle of what is freed. */
static void open_stale(struct generator *generator) {
    struct operation operation = begin(generator, DO_OPEN_STALE, random_context(generator));
    operation.exported = (uint8_t)below(generator, EXPORTS_MAX);
    operation.importer = (uint8_t)below(generator, IMPORTERS_MAX);
    model_offer(&generator->model, &operation);
}

void propose_sharing(struct generator *generator) {
    const int opening = random_opening(generator);
    const unsigned what = below(generator, 100);
    if (what < 5) {
        open_stale(generator);
    } else if (opening < 0 || what < 30) {
        export_block(generator);
    } else if (what < 45) {
        free_opened(generator, (unsigned)opening);
    } else if (what < 85) {
        use_opening(generator, (unsigned)opening);
    } else {
        struct operation operation = begin(generator, what < 96 ? DO_CLOSE : DO_KILL, random_context(generator));
        operation.opening = (uint8_t)opening;
        operation.importer = generator->model.openings[opening].importer;
        model_offer(&generator->model, &operation);
    }
}
