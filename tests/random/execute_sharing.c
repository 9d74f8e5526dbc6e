/* SPDX-License-Identifier: MIT
 *
 * Memory that other processes open: handles, and what these processes are told to do. They outlive a program, unless
 * they are killed.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "doors.h"
#include "execute.h"
#include "importer.h"
#include "kernels.h"
#include "sharing.h"
#include "tally.h"

enum { KILLS_ONE_IN = 4 };

struct live_export {
    bool valid;
    bool by_pool; /* by a handle of the pool's, not the driver's */
    uint16_t block;
    CUipcMemHandle handle;
};

struct live_opening {
    uint64_t address, bytes; /* 0: not open */
    bool kept;               /* the memory is not given to others before it is closed */
    uint8_t importer;
    uint16_t block;
};

static struct importer importers[IMPORTERS_MAX];
static struct live_export exports[EXPORTS_MAX];
static struct live_opening openings[OPENINGS_MAX];
static pthread_mutex_t told_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    uint32_t life;
    CUipcMemHandle handle;
} told[BLOCKS_MAX]; /* the last handle of each */

static bool ask(size_t number, unsigned importer, struct importer_request *request, struct importer_answer *answer) {
    request->number = (uint32_t)number;
    if (importer_ask(&importers[importer], request, answer)) return true;
    fail(number, "another process ended, or did not answer");
    return false;
}

/* A block that starts its segment is exported by the driver's handle, of whose fate nobody tells the exporter. Natively
 * all do. */
static bool starts_segment(uint64_t address) {
    bool (*ask_library)(uint64_t);
    *(void **)&ask_library = dlsym(RTLD_DEFAULT, "poolcuda_starts_segment");
    return ask_library == NULL || ask_library(address);
}

/* ---- handles ---- */

/* As long as a block lives it has one handle, which is nobody else's. */
static bool handle_is_own(const struct operation *operation, size_t number, const struct live_block *block,
                          const CUipcMemHandle *handle) {
    const char *wrong = NULL;
    pthread_mutex_lock(&told_lock);
    for (unsigned i = 0; i < BLOCKS_MAX; i++) {
        const bool own = told[i].life == block->life;
        const bool same = memcmp(&told[i].handle, handle, sizeof *handle) == 0;
        if (told[i].life != 0 && own != same) wrong = own ? "another than before" : "another block's";
    }
    told[operation->block].life = block->life;
    told[operation->block].handle = *handle;
    pthread_mutex_unlock(&told_lock);
    if (wrong == NULL) return true;
    fail(number, "the handle of block %u is %s", operation->block, wrong);
    return false;
}

static bool export(const struct operation *operation, size_t number) {
    const struct live_block *block = &running.blocks[operation->block];
    struct live_export *exported = &exports[operation->exported];
    union {
        CUipcMemHandle driver;
        cudaIpcMemHandle_t runtime;
    } handle;
    CUdeviceptr opened = 0;
    int answer;
    if (block->async && block->address == 0) return true;
    if (block->address == 0) {
        exported->valid = false;
        return true;
    }
    const CUdeviceptr address = block->address + operation->offset % block->bytes;
    PROGRAM_DID(sharing);
    TALLY(exports);
    if (operation->by_driver)
        answer = (int)BY_DOOR(operation, cuIpcGetMemHandle, "cuIpcGetMemHandle", 4010)(&handle.driver, address);
    else
        answer = (int)BY_RUNTIME_DOOR(operation, cudaIpcGetMemHandle)(&handle.runtime, (void *)(uintptr_t)address);
    cudaGetLastError();
    const int expected = block->async ? cudaErrorInvalidValue : 0;
    if (!expect(number, answer, "the handle of a block", expected, expected)) return false;
    if (block->async) return true;
    if (!handle_is_own(operation, number, block, &handle.driver)) return false;
    *exported = (struct live_export){true, !starts_segment(block->address), operation->block, handle.driver};
    return !operation->waits || expect(number, (int)cuIpcOpenMemHandle(&opened, handle.driver, 1),
                                       "a handle of our own process", CUDA_ERROR_INVALID_CONTEXT, 1);
}

static bool open_elsewhere(const struct operation *operation, size_t number) {
    const struct live_export *exported = &exports[operation->exported];
    struct live_opening *opening = &openings[operation->opening];
    struct importer *importer = &importers[operation->importer];
    struct importer_answer answer;
    *opening = (struct live_opening){.importer = operation->importer, .block = exported->block};
    if (!exported->valid) return true;
    if (importer->process == 0 && !importer_start(importer, !operation->strange)) {
        fail(number, "another process could not be started");
        return false;
    }
    const struct live_block *block = &running.blocks[exported->block];
    struct importer_request request = {
        .task = IMPORTER_OPEN, .by_driver = operation->by_driver, .device = block->device, .handle = exported->handle};
    if (!ask(number, operation->importer, &request, &answer)) return false;
    TALLY(openings);
    /* Without the pool, a handle of the pool's own is refused. */
    if (answer.code != 0 && !importer->pooled && importer_we_are_pooled()) {
        TALLY(openings_refused);
        return true;
    }
    if (!expect(number, answer.code, "the opening of a block", 0, 0)) return false;
    if (importer->pooled)
        PROGRAM_DID(sharing_opened_pooled);
    else
        PROGRAM_DID(sharing_opened_native);
    opening->address = answer.address;
    opening->bytes = block->bytes;
    opening->kept = exported->by_pool;
    return true;
}

/* The driver's handles are of whole segments, which may be there. */
static bool open_stale(const struct operation *operation, size_t number) {
    const struct live_export *exported = &exports[operation->exported];
    struct importer_answer answer;
    if (!exported->valid || !exported->by_pool || importers[operation->importer].process == 0) return true;
    struct importer_request request = {.task = IMPORTER_OPEN,
                                       .by_driver = operation->by_driver,
                                       .device = running.blocks[exported->block].device,
                                       .handle = exported->handle};
    if (!ask(number, operation->importer, &request, &answer)) return false;
    TALLY(openings_stale);
    if (answer.code != 0) return true;
    fail(number, "block %u was opened though it is freed", exported->block);
    return false;
}

/* ---- what others do with the memory ---- */

/* What the other process was to do, but cannot. */
static bool use_here(const struct operation *operation, size_t number) {
    const struct touch *touch = &operation->touches[0];
    const struct live_block *block = &running.blocks[touch->block];
    cudaStream_t stream = NULL;
    if (block->address == 0) return true;
    const struct kernel kernel = {.touches = {{.address = block->address,
                                               .bytes = block->bytes,
                                               .block = touch->block,
                                               .expected = touch->expected,
                                               .stamp = touch->stamp}},
                                  .touch_count = 1,
                                  .number = (uint32_t)number};
    return use_context(number, block->context) && DO(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)) &&
           DO(kernels_launch(&kernel, stream)) && DO(cudaStreamSynchronize(stream)) && DO(cudaStreamDestroy(stream));
}

/* Where the block is open; with the opening that is meant, if it is. */
static const struct live_opening *opening_of(const struct operation *operation) {
    const struct live_opening *meant = &openings[operation->opening];
    for (unsigned i = 0; meant->address == 0 && i < OPENINGS_MAX; i++)
        if (openings[i].address != 0 && openings[i].block == operation->touches[0].block) return &openings[i];
    return meant->address != 0 ? meant : NULL;
}

static bool use_elsewhere(const struct operation *operation, size_t number) {
    const struct touch *touch = &operation->touches[0];
    const struct live_block *block = &running.blocks[touch->block];
    const struct live_opening *opening = opening_of(operation);
    struct importer_answer answer;
    if (opening == NULL) return use_here(operation, number);
    if (block->address == 0 && !opening->kept) return true;
    if (block->address == 0) PROGRAM_DID(sharing_used_freed);
    TALLY(uses_elsewhere);
    struct importer_request request = {.task = IMPORTER_USE,
                                       .device = block->device,
                                       .used = {.address = opening->address,
                                                .bytes = opening->bytes,
                                                .block = touch->block,
                                                .expected = touch->expected,
                                                .stamp = touch->stamp}};
    if (!ask(number, opening->importer, &request, &answer) ||
        !expect(number, answer.code, "work of another process", 0, 0))
        return false;
    if (answer.wrongs == 0) return true;
    fail(number,
         "in another process block %u, %s here, held %" PRIu32 " at byte %" PRIu64 ", where stamp %" PRIu32
         " has %" PRIu32,
         touch->block, block->address != 0 ? "live" : "freed", answer.wrong.is, answer.wrong.offset,
         answer.wrong.expected, answer.wrong.should);
    return false;
}

static bool close_opening(size_t number, struct live_opening *opening, bool by_driver) {
    struct importer_answer answer;
    struct importer_request request = {.task = IMPORTER_CLOSE,
                                       .by_driver = by_driver,
                                       .device = running.blocks[opening->block].device,
                                       .used = {.address = opening->address}};
    if (opening->address == 0) return true;
    opening->address = 0;
    return ask(number, opening->importer, &request, &answer) &&
           expect(number, answer.code, "the closing of a block", 0, 0);
}

static void kill_importer(unsigned importer) {
    for (unsigned i = 0; i < OPENINGS_MAX; i++) {
        if (openings[i].importer != importer || openings[i].address == 0) continue;
        openings[i].address = 0;
        PROGRAM_DID(sharing_killed);
    }
    importer_kill(&importers[importer]);
}

bool sharing_operation(const struct operation *operation, size_t number) {
    switch (operation->kind) {
    case DO_EXPORT:
        return export(operation, number);
    case DO_OPEN:
        return open_elsewhere(operation, number);
    case DO_OPEN_STALE:
        return open_stale(operation, number);
    case DO_USE:
        return use_elsewhere(operation, number);
    case DO_CLOSE:
        return close_opening(number, &openings[operation->opening], operation->by_driver);
    default:
        kill_importer(operation->importer);
        return true;
    }
}

bool sharing_leave(size_t number, unsigned context) {
    bool done = true;
    for (unsigned i = 0; i < OPENINGS_MAX; i++) {
        struct live_opening *opening = &openings[i];
        if (context == CONTEXTS_MAX || running.blocks[opening->block].context == context)
            done = close_opening(number, opening, i % 2 == 0) && done;
    }
    return done;
}

bool sharing_end(size_t number) {
    for (unsigned i = 0; i < IMPORTERS_MAX; i++)
        if ((running.program->seed + i) % KILLS_ONE_IN == 0) kill_importer(i);
    const bool done = sharing_leave(number, CONTEXTS_MAX);
    memset(exports, 0, sizeof exports);
    memset(openings, 0, sizeof openings);
    return done;
}

bool sharing_finish(void) {
    bool done = true;
    for (unsigned i = 0; i < IMPORTERS_MAX; i++) done = importer_stop(&importers[i]) == 0 && done;
    return done;
}
