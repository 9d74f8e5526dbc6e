/* SPDX-License-Identifier: MIT
 *
 * Prints programs.
 */
#include <inttypes.h>
#include <stdio.h>

#include "program.h"

const char *operation_name(unsigned kind) {
    static const char *const names[] = {
#define OPERATION_NAME(name, unsafe) #name,
        OPERATION_KINDS(OPERATION_NAME)
#undef OPERATION_NAME
    };
    return kind < DO_COUNT ? names[kind] : "?";
}

static void stream_print(unsigned stream) {
    if (stream < LEGACY_FIRST)
        printf(" stream=%u", stream);
    else if (stream < PER_THREAD_FIRST)
        printf(" stream=legacy");
    else
        printf(" stream=per-thread");
}

void operation_print(const struct operation *operation, size_t number) {
    printf("%4zu thread=%u context=%u %s", number, operation->thread, operation->context,
           operation_name(operation->kind));
    switch (operation->kind) {
    case DO_STREAM_CREATE:
        printf(" stream=%u kind=%s", operation->stream,
               (const char *const[]){"blocking", "non-blocking", "priority", "unseen"}[operation->other]);
        break;
    case DO_STREAM_DESTROY:
    case DO_STREAM_SYNCHRONIZE:
    case DO_STREAM_QUERY:
        stream_print(operation->stream);
        break;
    case DO_EVENT_RECORD:
    case DO_STREAM_WAIT:
        stream_print(operation->stream);
        printf(" event=%u", operation->event);
        break;
    case DO_EVENT_SYNCHRONIZE:
    case DO_EVENT_QUERY:
        printf(" event=%u", operation->event);
        break;
    case DO_ALLOC:
    case DO_LOOK_UP:
        printf(" block=%u", operation->block);
        break;
    case DO_FREE:
        printf(" block=%u%s%s", operation->block, operation->strange ? " by a bare thread" : "",
               operation->waits ? " and lean on its wait" : "");
        break;
    case DO_ALLOC_ASYNC:
        stream_print(operation->stream);
        printf(" block=%u pool=%u%s", operation->block, operation->source,
               operation->memory_pool != NOBODY ? "" : " (current)");
        break;
    case DO_FREE_ASYNC:
        stream_print(operation->stream);
        printf(" block=%u", operation->block);
        break;
    case DO_MARK:
        printf(" block=%u", operation->block);
        break;
    case DO_FREE_WRONG:
        if (operation->waits) stream_print(operation->stream);
        printf(" block=%u kind=%s", operation->block,
               (const char *const[]){"interior", "garbage", "twice", "bare-thread"}[operation->other]);
        break;
    case DO_POOL_CREATE:
    case DO_POOL_ACCESS:
        printf(" pool=%u device=%u", operation->memory_pool, operation->other);
        break;
    case DO_POOL_ADJUST:
        printf(" pool=%u attribute=%s", operation->memory_pool,
               (const char *const[]){"threshold", "follow-events", "opportunistic",
                                     "internal-dependencies"}[operation->other]);
        break;
    case DO_POOL_SET:
    case DO_POOL_TRIM:
    case DO_POOL_LOOK:
    case DO_POOL_DESTROY:
        printf(" pool=%u", operation->memory_pool);
        break;
    case DO_EXPORT:
        printf(" block=%u export=%u", operation->block, operation->exported);
        break;
    case DO_OPEN:
        printf(" export=%u process=%u opening=%u%s", operation->exported, operation->importer, operation->opening,
               operation->strange ? " natively" : "");
        break;
    case DO_OPEN_STALE:
        printf(" export=%u process=%u", operation->exported, operation->importer);
        break;
    case DO_USE:
    case DO_CLOSE:
        printf(" process=%u opening=%u", operation->importer, operation->opening);
        break;
    case DO_KILL:
        printf(" process=%u", operation->importer);
        break;
    case DO_CAPTURE_BEGIN:
        stream_print(operation->stream);
        printf(" graph=%u mode=%s", operation->graph,
               (const char *const[]){"global", "thread-local", "relaxed"}[operation->other]);
        break;
    case DO_CAPTURE_FORK:
        stream_print(operation->stream);
        printf(" to");
        stream_print(operation->other);
        break;
    case DO_GRAPH_LAUNCH:
    case DO_CAPTURE_END:
        stream_print(operation->stream);
        printf(" graph=%u", operation->graph);
        break;
    case DO_GRAPH_DESTROY:
        printf(" graph=%u", operation->graph);
        break;
    case DO_PEER_ENABLE:
    case DO_CONTEXT_CREATE:
        printf(" device=%u", operation->other);
        break;
    case DO_KERNEL:
    case DO_MEMSET:
    case DO_READ_BACK:
    case DO_CAPTURE_TEMPORARY:
        stream_print(operation->stream);
        break;
    default:
        break;
    }
    if (operation->bytes > 0) printf(" bytes=%" PRIu64, operation->bytes);
    if (operation->microseconds > 0) printf(" us=%" PRIu32, operation->microseconds);
    if (operation->kind == DO_KERNEL && operation->waits) printf(" until released");
    for (unsigned i = 0; i < operation->touch_count; i++) {
        const struct touch *touch = &operation->touches[i];
        printf(" %s=%u", touch->writes ? "writes" : "reads", touch->block);
        if (touch->expected != 0) printf("(holds %" PRIu32 ")", touch->expected);
        if (touch->stamp != 0) printf("(stamp %" PRIu32 ")", touch->stamp);
    }
    for (unsigned i = 0; i < THREADS_MAX; i++)
        if (operation->after[i] > 0) printf(" after=%u:%u", i, operation->after[i]);
    if (operation->offset > 0) printf(" offset=%" PRIu64, operation->offset);
    if (operation->door > 0) printf(" door=%u", operation->door);
    if (operation->by_driver) printf(" driver");
    if (operation->per_thread) printf(" ptsz");
    putchar('\n');
}

void program_print(const struct program *program) {
    printf("# seed %" PRIu64 ": %zu operations, %u threads, %u devices\n", program->seed, program->count,
           program->threads, program->devices);
    for (size_t i = 0; i < program->count; i++) operation_print(&program->operations[i], i);
}
