/* SPDX-License-Identifier: MIT
 *
 * The primary contexts of the devices: the handle of each, and how often the program holds it. The driver tells a
 * handle only to who retains the context, and a retain of our own could keep it alive past the program's last release.
 * So handles are noted as the program retains; where one is not known, because it was retained behind our back, the
 * driver is asked while no end of the context is under way, and none begins.
 *
 * The count is what passed our hooks: more may hold the context, and then an end that is not the last is taken for one
 * that may be; fewer only where it was released behind our back, which shows when the driver calls it inactive.
 */
#include "device/driver.h"

static struct driver_primary *primary_of(struct device_driver *driver, int ordinal) {
    return ordinal >= 0 && ordinal < DRIVER_DEVICES ? &driver->primaries[ordinal] : NULL;
}

bool device_driver_primary_active(struct device_driver *driver, int ordinal) {
    unsigned int flags = 0;
    int active = 0;
    return driver->call.primary_get_state(ordinal, &flags, &active) == CUDA_SUCCESS && active;
}

/* Retaining an inactive primary context would create it. */
static void *ask(struct device_driver *driver, int ordinal) {
    CUcontext handle = NULL;
    if (!device_driver_primary_active(driver, ordinal)) return NULL;
    if (driver->call.primary_retain(&handle, ordinal) != CUDA_SUCCESS) return NULL;
    driver->call.primary_release(ordinal);
    return handle;
}

int device_driver_primary_find(struct device_driver *driver, int ordinal, bool wait, void **handle) {
    *handle = NULL;
    if (!device_driver_primary_active(driver, ordinal)) return DEVICE_OK;
    struct driver_primary *primary = primary_of(driver, ordinal);
    if (!primary) {
        *handle = ask(driver, ordinal);
        return DEVICE_OK;
    }
    pthread_mutex_lock(&driver->live_lock);
    while (!primary->handle && primary->ending && wait) device_driver_await_change(driver);
    *handle = primary->handle;
    const bool ends = !*handle && primary->ending;
    const bool asks = !*handle && !ends;
    if (asks) primary->asking++;
    pthread_mutex_unlock(&driver->live_lock);
    if (!asks) return ends ? DEVICE_NOT_READY : DEVICE_OK;
    *handle = ask(driver, ordinal);
    pthread_mutex_lock(&driver->live_lock);
    if (!primary->handle) primary->handle = *handle;
    primary->asking--;
    pthread_cond_broadcast(&driver->live_changed);
    pthread_mutex_unlock(&driver->live_lock);
    return DEVICE_OK;
}

void *device_driver_primary(struct device_driver *driver, int ordinal) {
    void *handle;
    return device_driver_primary_find(driver, ordinal, false, &handle) == DEVICE_OK ? handle : NULL;
}

void device_driver_primary_retained(struct device_driver *driver, int ordinal, void *handle) {
    struct driver_primary *primary = primary_of(driver, ordinal);
    if (!primary) return;
    pthread_mutex_lock(&driver->live_lock);
    primary->handle = handle;
    primary->held++;
    pthread_mutex_unlock(&driver->live_lock);
}

bool device_driver_primary_ending(struct device_driver *driver, int ordinal, enum primary_end how) {
    struct driver_primary *primary = primary_of(driver, ordinal);
    if (!primary) return true;
    pthread_mutex_lock(&driver->live_lock);
    /* Whether a reset leaves the driver's count as it is, is not documented. */
    if (how == PRIMARY_RESET) primary->held = 0;
    if (how == PRIMARY_RELEASE && primary->held) primary->held--;
    const bool may_end = !primary->held;
    if (may_end) {
        primary->ending++;
        /* Those that came before, each certain that another was to come, must have gone; so must our own retains. */
        while (primary->releasing || primary->asking) device_driver_await_change(driver);
    } else {
        primary->releasing++;
    }
    pthread_mutex_unlock(&driver->live_lock);
    return may_end;
}

void device_driver_primary_ended(struct device_driver *driver, int ordinal, bool may_end, bool gone) {
    struct driver_primary *primary = primary_of(driver, ordinal);
    if (!primary) return;
    pthread_mutex_lock(&driver->live_lock);
    if (may_end) {
        primary->ending--;
    } else {
        primary->releasing--;
        if (gone) primary->held = 0; /* released behind our back as well */
    }
    if (gone && !primary->held) primary->handle = NULL;
    pthread_cond_broadcast(&driver->live_changed);
    pthread_mutex_unlock(&driver->live_lock);
}
