/* SPDX-License-Identifier: MIT
 *
 * What the guests that hand every kind of pointer to every free function share.
 */
#ifndef HAZARDS_GUEST_POINTERS_H
#define HAZARDS_GUEST_POINTERS_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MIB ((size_t)1 << 20)
#define GARBAGE 0x123456789000

struct part {
    const char *name;
    void (*run)(void);
};

/* The part that the first argument names. */
static inline int run_part(int argc, char **argv, const struct part *parts, size_t count) {
    setvbuf(stdout, NULL, _IONBF, 0);
    for (size_t i = 0; argc >= 2 && i < count; i++) {
        if (strcmp(argv[1], parts[i].name) != 0) continue;
        parts[i].run();
        return 0;
    }
    return 2;
}

/* The pool's invariants, where the library preloaded has a door to them. */
static inline const char *broken_invariant(void) {
    const char *(*check)(void) = (const char *(*)(void))dlsym(RTLD_DEFAULT, "poolcuda_check");
    const char *broken = check ? check() : NULL;
    return broken ? broken : "none";
}

#endif
