/* SPDX-License-Identifier: MIT
 *
 * The contexts that live, and marks behind their work: a fence is an event recorded by cuCtxRecordEvent on every live
 * context, or by cuEventRecord on one stream. Events belong to their context and are used again; so are the fences'
 * records: once there are enough, nothing is created any more.
 *
 * A context that ends takes its events with it. So whoever is in the driver with an event is counted, and a context is
 * destroyed only when nobody is; from then on its part of every fence counts as passed.
 */
#include "device/driver.h"

#include <errno.h>
#include <stdlib.h>

struct spare_event {
    struct spare_event *next;
    CUevent event;
};

struct live_context {
    struct live_context *next;
    struct device_context context;
    uint64_t serial;
    enum live_kind kind;
    bool gone;
    unsigned closing;  /* ends that are under way */
    unsigned users;    /* waits for it, and uses less of it, that are under way */
    unsigned attached; /* uses beyond the one that its creation was */
    unsigned parts;    /* fences' parts that refer to it: it is freed with the last, once gone */
    struct spare_event *spare;
};

struct fence_part {
    struct live_context *context;
    struct spare_event *event;
    bool passed; /* written by the one who asks */
};

struct device_fence {
    struct device_fence *next; /* spare */
    unsigned room, count;
    struct fence_part parts[];
};

static struct device_driver *driver_of(void *self) {
    return self;
}

/* ---- the table. Under live_lock ---- */

static struct live_context **link_of(struct device_driver *driver, const void *handle) {
    struct live_context **link = &driver->live;
    while (*link && (*link)->context.handle != handle) link = &(*link)->next;
    return link;
}

static struct live_context *find(struct device_driver *driver, const void *handle) {
    return *link_of(driver, handle);
}

static void free_events(struct live_context *live) {
    while (live->spare) {
        struct spare_event *event = live->spare;
        live->spare = event->next;
        free(event);
    }
}

static void drop_part(struct fence_part *part) {
    struct live_context *live = part->context;
    if (live->gone) {
        free(part->event);
    } else if (part->event) {
        part->event->next = live->spare;
        live->spare = part->event;
    }
    if (--live->parts == 0 && live->gone) free(live);
}

static void users_leave(struct device_driver *driver) {
    if (--driver->users == 0 && driver->closing) pthread_cond_broadcast(&driver->live_changed);
}

void device_driver_await_change(struct device_driver *driver) {
    /* A thread that was cancelled here would take the lock with it. */
    int cancel_state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    pthread_cond_wait(&driver->live_changed, &driver->live_lock);
    pthread_setcancelstate(cancel_state, &cancel_state);
}

/* ---- contexts ---- */

/* The context is no longer in the table. */
static void forget(struct device_driver *driver, struct live_context *live) {
    driver->closing -= live->closing;
    atomic_fetch_sub(&driver->live_count, live->kind != LIVE_GREEN);
    live->gone = true;
    free_events(live);
    if (!live->parts) free(live);
}

/* Not under live_lock. */
static void forget_contents(struct device_driver *driver, const void *handle) {
    device_driver_streams_gone(driver, handle);
    device_driver_fill_forget(driver, handle);
}

static struct live_context *add(struct device_driver *driver, struct device_context context, enum live_kind kind) {
    struct live_context *live = calloc(1, sizeof *live);
    if (!live) return NULL;
    live->context = context;
    live->kind = kind;
    live->serial = ++driver->next_serial;
    live->next = driver->live;
    driver->live = live;
    atomic_fetch_add(&driver->live_count, kind != LIVE_GREEN);
    return live;
}

bool device_driver_context_known(struct device_driver *driver, struct device_context context, enum live_kind kind) {
    const int error = errno;
    pthread_mutex_lock(&driver->live_lock);
    struct live_context **link = link_of(driver, context.handle);
    struct live_context *live = *link;
    /* Whatever had the handle of a context that was just made is gone, though nobody said so yet. */
    bool replaced = live && kind == LIVE_CREATED;
    if (replaced) {
        *link = live->next;
        forget(driver, live);
        live = NULL;
    }
    if (!live) {
        live = add(driver, context, kind);
    } else if (kind != LIVE_FOUND) {
        if (live->kind != LIVE_GREEN && kind == LIVE_GREEN) atomic_fetch_sub(&driver->live_count, 1);
        live->kind = kind;
    }
    pthread_mutex_unlock(&driver->live_lock);
    if (replaced) forget_contents(driver, context.handle);
    errno = error;
    return live != NULL;
}

void device_driver_context_closing(struct device_driver *driver, const void *handle) {
    pthread_mutex_lock(&driver->live_lock);
    struct live_context *live = find(driver, handle);
    if (live) {
        live->closing++;
        driver->closing++;
        while (driver->users || live->users) device_driver_await_change(driver);
    }
    pthread_mutex_unlock(&driver->live_lock);
}

void device_driver_context_settled(struct device_driver *driver, const void *handle, bool gone) {
    pthread_mutex_lock(&driver->live_lock);
    struct live_context **link = link_of(driver, handle);
    struct live_context *live = *link;
    /* One that nobody is ending was created meanwhile, and given the handle again. */
    bool another = live && !live->closing && live->kind == LIVE_CREATED;
    if (live && live->closing) {
        live->closing--;
        driver->closing--;
    }
    if (live && gone && !another) {
        *link = live->next;
        forget(driver, live);
    }
    pthread_cond_broadcast(&driver->live_changed);
    pthread_mutex_unlock(&driver->live_lock);
    if (gone && !another) forget_contents(driver, handle);
}

bool device_driver_context_created(struct device_driver *driver, const void *handle) {
    pthread_mutex_lock(&driver->live_lock);
    const struct live_context *live = find(driver, handle);
    bool created = live && live->kind == LIVE_CREATED;
    pthread_mutex_unlock(&driver->live_lock);
    return created;
}

bool device_driver_context_green(struct device_driver *driver, const void *handle) {
    pthread_mutex_lock(&driver->live_lock);
    const struct live_context *live = find(driver, handle);
    bool green = live && live->kind == LIVE_GREEN;
    pthread_mutex_unlock(&driver->live_lock);
    return green;
}

int device_driver_context_ordinal(struct device_driver *driver, const void *handle) {
    pthread_mutex_lock(&driver->live_lock);
    const struct live_context *live = find(driver, handle);
    const int ordinal = live ? live->context.ordinal : -1;
    pthread_mutex_unlock(&driver->live_lock);
    return ordinal;
}

uint64_t device_driver_context_serial(struct device_driver *driver, const void *handle) {
    pthread_mutex_lock(&driver->live_lock);
    const struct live_context *live = find(driver, handle);
    uint64_t serial = live ? live->serial : 0;
    pthread_mutex_unlock(&driver->live_lock);
    return serial;
}

void device_driver_context_attached(struct device_driver *driver, const void *handle) {
    pthread_mutex_lock(&driver->live_lock);
    struct live_context *live = find(driver, handle);
    if (live) live->attached++;
    pthread_mutex_unlock(&driver->live_lock);
}

bool device_driver_context_detaching(struct device_driver *driver, const void *handle) {
    pthread_mutex_lock(&driver->live_lock);
    struct live_context *live = find(driver, handle);
    const bool ends = !live || !live->attached;
    if (!ends) {
        live->attached--;
        live->users++; /* whoever ends it waits for that */
    }
    pthread_mutex_unlock(&driver->live_lock);
    return ends;
}

void device_driver_context_detached(struct device_driver *driver, const void *handle, bool done) {
    pthread_mutex_lock(&driver->live_lock);
    struct live_context *live = find(driver, handle);
    if (live && !done) live->attached++;
    if (live && --live->users == 0 && live->closing) pthread_cond_broadcast(&driver->live_changed);
    pthread_mutex_unlock(&driver->live_lock);
}

void device_driver_access_given(struct device_driver *driver, int owner, int user) {
    if (user < 0 || user >= 64) return;
    for (int i = 0; i < 64; i++)
        if (owner < 0 || owner == i) atomic_fetch_or(&driver->reached_by[i], (uint64_t)1 << user);
}

/* May work of a context on the device `user` use memory of `owner`? */
static bool reaches(const struct device_driver *driver, int user, int owner) {
    if (user == owner || owner < 0) return true;
    if (user < 0 || user >= 64 || owner >= 64) return true;
    return atomic_load(&driver->reached_by[owner]) >> user & 1;
}

static bool context_alone(void *self, struct device_context context) {
    struct device_driver *driver = driver_of(self);
    /* The one itself is known, since it has a pool. */
    if (atomic_load_explicit(&driver->live_count, memory_order_acquire) <= 1) return true;
    bool alone = true;
    pthread_mutex_lock(&driver->live_lock);
    for (const struct live_context *live = driver->live; live && alone; live = live->next)
        alone = live->context.handle == context.handle || live->kind == LIVE_GREEN ||
                !reaches(driver, live->context.ordinal, context.ordinal);
    pthread_mutex_unlock(&driver->live_lock);
    return alone;
}

/* One that is about to end is not waited for: its end may wait for what the calling thread has entered. */
static struct live_context *lend(struct device_driver *driver, int ordinal) {
    pthread_mutex_lock(&driver->live_lock);
    struct live_context *live = driver->live;
    while (live && (live->context.ordinal != ordinal || live->closing || live->kind == LIVE_GREEN)) live = live->next;
    if (live) live->users++;
    pthread_mutex_unlock(&driver->live_lock);
    return live;
}

static void take_back(struct device_driver *driver, const void *handle) {
    pthread_mutex_lock(&driver->live_lock);
    struct live_context *live = find(driver, handle);
    if (live && --live->users == 0 && live->closing) pthread_cond_broadcast(&driver->live_changed);
    pthread_mutex_unlock(&driver->live_lock);
}

static bool borrow_context(void *self, int ordinal, struct device_context *borrowed) {
    struct device_driver *driver = driver_of(self);
    const struct live_context *live = lend(driver, ordinal);
    if (!live) return false;
    *borrowed = live->context; /* it lives as long as it is lent */
    if (driver->call.context_push((CUcontext)borrowed->handle) == CUDA_SUCCESS) return true;
    take_back(driver, borrowed->handle);
    return false;
}

static void return_context(void *self, struct device_context borrowed) {
    struct device_driver *driver = driver_of(self);
    device_driver_leave(driver, true);
    take_back(driver, borrowed.handle);
}

static bool knows_primary(struct device_driver *driver, int ordinal) {
    pthread_mutex_lock(&driver->live_lock);
    const struct live_context *live = driver->live;
    while (live && (live->kind != LIVE_PRIMARY || live->context.ordinal != ordinal)) live = live->next;
    pthread_mutex_unlock(&driver->live_lock);
    return live != NULL;
}

/* Primary contexts may have come to life by calls that no hook sees. DEVICE_OUT_OF_MEMORY: of the host; or, without
 * `wait`, DEVICE_NOT_READY: one of them may be about to end. */
static int find_primaries(struct device_driver *driver, bool wait) {
    int count = 0;
    if (!driver->call.device_count || driver->call.device_count(&count) != CUDA_SUCCESS) return DEVICE_OK;
    for (int ordinal = 0; ordinal < count; ordinal++) {
        if (knows_primary(driver, ordinal)) continue;
        struct device_context context = {NULL, ordinal};
        const int result = device_driver_primary_find(driver, ordinal, wait, &context.handle);
        if (result != DEVICE_OK) return result;
        if (context.handle && !device_driver_context_known(driver, context, LIVE_PRIMARY)) return DEVICE_OUT_OF_MEMORY;
    }
    return DEVICE_OK;
}

/* A context with such an error does no more work until it is reset. */
static bool has_failed(int code) {
    return code == CUDA_ERROR_ILLEGAL_ADDRESS || code == CUDA_ERROR_LAUNCH_TIMEOUT || code == CUDA_ERROR_ASSERT ||
           (code >= CUDA_ERROR_HARDWARE_STACK_ERROR && code <= CUDA_ERROR_LAUNCH_FAILED);
}

static int synchronize_all(void *self) {
    struct device_driver *driver = driver_of(self);
    int result = find_primaries(driver, true);
    uint64_t done = 0;
    pthread_mutex_lock(&driver->live_lock);
    while (result == DEVICE_OK) {
        /* The table changes meanwhile: contexts are visited in the order in which they came. */
        struct live_context *next = NULL;
        for (struct live_context *live = driver->live; live; live = live->next)
            if (live->kind != LIVE_GREEN && live->serial > done && (!next || live->serial < next->serial)) next = live;
        if (!next) break;
        if (next->closing) {
            device_driver_await_change(driver); /* it is gone soon, or stays after all */
            continue;
        }
        done = next->serial;
        next->users++;
        pthread_mutex_unlock(&driver->live_lock);
        result = driver->ops.context_synchronize(driver, next->context);
        if (has_failed(result)) result = DEVICE_OK;
        pthread_mutex_lock(&driver->live_lock);
        if (--next->users == 0 && next->closing) pthread_cond_broadcast(&driver->live_changed);
    }
    pthread_mutex_unlock(&driver->live_lock);
    return result;
}

/* ---- fences ---- */

/* With room for `count` parts; NULL when host memory ran out. Under live_lock. */
static struct device_fence *fence_new(struct device_driver *driver, unsigned count) {
    struct device_fence **link = &driver->spare_fences;
    while (*link && (*link)->room < count) link = &(*link)->next;
    struct device_fence *fence = *link;
    if (fence) {
        *link = fence->next;
    } else {
        const unsigned room = count < 4 ? 4 : count;
        fence = malloc(sizeof *fence + room * sizeof fence->parts[0]);
        if (!fence) return NULL;
        fence->room = room;
    }
    fence->count = 0;
    return fence;
}

/* Under live_lock. */
static void add_part(struct device_fence *fence, struct live_context *live) {
    fence->parts[fence->count++] = (struct fence_part){.context = live, .event = live->spare};
    if (live->spare) live->spare = live->spare->next;
    live->parts++;
}

static void fence_drop(void *self, struct device_fence *fence) {
    struct device_driver *driver = driver_of(self);
    pthread_mutex_lock(&driver->live_lock);
    for (unsigned i = 0; i < fence->count; i++) drop_part(&fence->parts[i]);
    fence->next = driver->spare_fences;
    driver->spare_fences = fence;
    pthread_mutex_unlock(&driver->live_lock);
}

/* An event in the context, where none is left over. */
static int make_event(struct device_driver *driver, struct fence_part *part) {
    if (part->event) return DEVICE_OK;
    const int error = errno;
    struct spare_event *event = malloc(sizeof *event);
    errno = error;
    if (!event) return DEVICE_OUT_OF_MEMORY;
    bool pushed;
    CUresult result = device_driver_enter(driver, part->context->context, &pushed);
    if (result == CUDA_SUCCESS) result = driver->call.event_create(&event->event, CU_EVENT_DISABLE_TIMING);
    device_driver_leave(driver, pushed);
    if (result != CUDA_SUCCESS) {
        free(event);
        return (int)result;
    }
    part->event = event;
    return DEVICE_OK;
}

/* A fence with its parts and none recorded, its maker counted in `users`: of one context, or of all but green ones. */
static int fence_begin(struct device_driver *driver, const void *one, struct device_fence **out) {
    const int error = errno;
    int result = DEVICE_OK;
    struct device_fence *fence = NULL;
    pthread_mutex_lock(&driver->live_lock);
    unsigned count = 0;
    for (const struct live_context *live = driver->live; live; live = live->next) {
        if (one ? live->context.handle != one : live->kind == LIVE_GREEN) continue;
        if (live->closing) result = DEVICE_NOT_READY;
        if (live->kind == LIVE_GREEN) result = DEVICE_NOT_SUPPORTED;
        count++;
    }
    if (one && !count) result = DEVICE_INVALID_CONTEXT;
    if (result == DEVICE_OK) {
        fence = fence_new(driver, count);
        if (!fence) result = DEVICE_OUT_OF_MEMORY;
    }
    if (fence) {
        for (struct live_context *live = driver->live; live; live = live->next)
            if (one ? live->context.handle == one : live->kind != LIVE_GREEN) add_part(fence, live);
        driver->users++;
    }
    pthread_mutex_unlock(&driver->live_lock);
    errno = error;
    *out = fence;
    return result;
}

static int fence_end(struct device_driver *driver, struct device_fence *fence, int result, struct device_fence **out) {
    pthread_mutex_lock(&driver->live_lock);
    users_leave(driver);
    pthread_mutex_unlock(&driver->live_lock);
    if (result == DEVICE_OK)
        *out = fence;
    else
        fence_drop(driver, fence);
    return result;
}

static bool fences_supported(void *self) {
    const struct driver_functions *call = &driver_of(self)->call;
    return call->context_record_event && call->event_create && call->event_query;
}

static int fence_record(void *self, struct device_fence **out) {
    struct device_driver *driver = driver_of(self);
    if (!fences_supported(self)) return DEVICE_NOT_SUPPORTED;
    struct device_fence *fence;
    int result = find_primaries(driver, false);
    if (result == DEVICE_OK) result = fence_begin(driver, NULL, &fence);
    if (result != DEVICE_OK) return result;
    for (unsigned i = 0; i < fence->count && result == DEVICE_OK; i++) {
        struct fence_part *part = &fence->parts[i];
        result = make_event(driver, part);
        if (result == DEVICE_OK)
            result =
                (int)driver->call.context_record_event((CUcontext)part->context->context.handle, part->event->event);
        if (has_failed(result)) {
            part->passed = true;
            result = DEVICE_OK;
        }
    }
    return fence_end(driver, fence, result, out);
}

static int fence_record_stream(void *self, struct device_context context, struct device_stream stream,
                               struct device_fence **out) {
    struct device_driver *driver = driver_of(self);
    if (!driver->call.event_record || !driver->call.event_create || !driver->call.event_query)
        return DEVICE_NOT_SUPPORTED;
    struct device_fence *fence;
    int result = fence_begin(driver, context.handle, &fence);
    if (result != DEVICE_OK) return result;
    result = make_event(driver, &fence->parts[0]);
    /* The default streams are those of the context that is current. */
    bool pushed = false;
    if (result == DEVICE_OK) result = (int)device_driver_enter(driver, context, &pushed);
    if (result == DEVICE_OK)
        result = (int)driver->call.event_record(fence->parts[0].event->event, device_driver_stream_handle(stream));
    device_driver_leave(driver, pushed);
    return fence_end(driver, fence, result, out);
}

/* An event that nobody asks about. In a context that ends there is no order to keep. */
static int stream_touch(void *self, struct device_context context, struct device_stream stream) {
    struct device_fence *fence;
    const int result = fence_record_stream(self, context, stream, &fence);
    if (result == DEVICE_OK) fence_drop(self, fence);
    return result == DEVICE_NOT_READY ? DEVICE_OK : result;
}

static int fence_query(void *self, struct device_fence *fence, int ordinal) {
    struct device_driver *driver = driver_of(self);
    bool ends = false, asks = false;
    pthread_mutex_lock(&driver->live_lock);
    for (unsigned i = 0; i < fence->count; i++) {
        struct fence_part *part = &fence->parts[i];
        if (part->context->gone) part->passed = true;
        asks |= !part->passed;
        ends |= !part->passed && part->context->closing && reaches(driver, part->context->context.ordinal, ordinal);
    }
    if (asks && !ends) driver->users++;
    pthread_mutex_unlock(&driver->live_lock);
    if (ends) return DEVICE_NOT_READY;
    if (!asks) return DEVICE_OK;

    /* A question about an event is refused in a capture's mode, and would break the capture. */
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool exchanged =
        driver->call.exchange_capture_mode && driver->call.exchange_capture_mode(&mode) == CUDA_SUCCESS;
    int result = DEVICE_OK;
    for (unsigned i = 0; i < fence->count && result == DEVICE_OK; i++) {
        struct fence_part *part = &fence->parts[i];
        if (part->passed || !reaches(driver, part->context->context.ordinal, ordinal)) continue;
        result = (int)driver->call.event_query(part->event->event);
        part->passed = result == DEVICE_OK;
    }
    if (exchanged) driver->call.exchange_capture_mode(&mode);

    pthread_mutex_lock(&driver->live_lock);
    users_leave(driver);
    pthread_mutex_unlock(&driver->live_lock);
    return result;
}

void device_fences_bind(struct device_driver *driver) {
    pthread_mutex_init(&driver->live_lock, NULL);
    pthread_cond_init(&driver->live_changed, NULL);
    driver->ops.context_alone = context_alone;
    driver->ops.borrow_context = borrow_context;
    driver->ops.return_context = return_context;
    driver->ops.synchronize_all = synchronize_all;
    driver->ops.fences_supported = fences_supported;
    driver->ops.fence_record = fence_record;
    driver->ops.fence_record_stream = fence_record_stream;
    driver->ops.stream_touch = stream_touch;
    driver->ops.fence_query = fence_query;
    driver->ops.fence_drop = fence_drop;
}
