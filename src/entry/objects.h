/* SPDX-License-Identifier: MIT
 *
 * The objects that are loaded in this process and what they define, never our own, read without the loader's lock.
 */
#ifndef POOLCUDA_ENTRY_OBJECTS_H
#define POOLCUDA_ENTRY_OBJECTS_H

#include <stdbool.h>
#include <stdint.h>

/* How many objects were loaded and unloaded so far. */
struct objects_count {
    unsigned long long loads, unloads;
};
struct objects_count objects_count(void);

/* Where the object that holds `address` lies: it is known by its start. False, and zeros, when none does. */
struct objects_extent {
    uintptr_t low, high; /* high: behind its end */
};
bool objects_extent(const void *address, struct objects_extent *out);
static inline bool objects_within(const struct objects_extent *extent, const void *address) {
    return (uintptr_t)address - extent->low < extent->high - extent->low;
}

/* What the dynamic linker would bind a reference of the object at `caller` to if we were not there: the first
 * definition that was loaded with the program and lies behind us, else one in the object and what it needs, of the
 * version by which the object needs the library whose file name begins with `library`. NULL when there is none. */
void *objects_bind(const void *caller, const char *symbol, const char *library);

/* For a caller that nothing is bound so: any definition, in such a library before others. */
void *objects_bind_loosely(const void *caller, const char *symbol, const char *library);

/* The same for a reference by RTLD_NEXT from our library to what was loaded with the program. */
void *objects_next(const char *symbol);

/* What dlsym would find with a handle of the object at `address`: in it, else in what it needs. */
void *objects_symbol(const void *address, const char *symbol);

/* Start of the object that goes by this name: its own or its file's. 0 when none does. */
uintptr_t objects_named(const char *name);

/* Does the object at `address` stay until the process ends, as far as its own tables say? */
bool objects_stays(const void *address);

#endif
