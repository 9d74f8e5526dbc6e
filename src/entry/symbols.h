/* SPDX-License-Identifier: MIT
 *
 * The real functions: libc's dlsym, the driver's entry points, and which address is to be replaced by which hook.
 */
#ifndef POOLCUDA_ENTRY_SYMBOLS_H
#define POOLCUDA_ENTRY_SYMBOLS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "entry/hooks.h"

/* libc's own dlsym, NULL when there is none to be found. The trampoline reads it after hook_pick. */
typedef void *entry_dlsym_function(void *handle, const char *name);
extern entry_dlsym_function *entry_real_dlsym;
entry_dlsym_function *symbols_dlsym(void);

/* The hook for what `handle` gives for `name`, NULL when the real dlsym is to answer. `caller`: who asks. Called by the
 * trampoline. */
void *hook_pick(void *handle, const char *name, const void *caller);

/* The driver's own functions, filled when the driver is found; NULL where it lacks one. */
union entry_real {
    struct {
#define ENTRY_REAL_FIELD(symbol, name, version, flags, arguments) CUresult(CUDAAPI *real_##symbol) arguments;
        ENTRY_HOOKS(ENTRY_REAL_FIELD)
#undef ENTRY_REAL_FIELD
    };
    void *at[ENTRY_HOOK_COUNT];
};
extern union entry_real entry_real;
#define REAL(symbol) (entry_real.real_##symbol)

/* Is the driver loaded, and its functions known? Looks once more as long as it is not; a load afterwards. Keeps errno.
 */
extern _Atomic bool entry_driver_found;
bool symbols_find_driver(void);
static inline bool symbols_driver(void) {
    return __builtin_expect(atomic_load_explicit(&entry_driver_found, memory_order_acquire), 1) ||
           symbols_find_driver();
}

/* Any symbol of the driver. Good once it is found. */
void *symbols_driver_lookup(const char *symbol);

/* Can allocations be told from others and freed by every way? False when two names of one function confuse them. */
bool symbols_hooks_usable(void);

/* The hook that stands for `address`, NULL when it is none of the driver's hooked functions or when `caller` is the
 * driver itself. */
void *symbols_hook(const void *address, const void *caller);

/* Does the object that starts here free by our hook, as far as we know? Objects are noted as they are given the hook.
 */
bool symbols_object_hooked(uintptr_t start);

/* In a forked child: nobody else holds our lock. */
void symbols_after_fork(void);

#endif
