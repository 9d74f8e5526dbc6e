/* SPDX-License-Identifier: MIT
 *
 * One link of a chain of libraries that each find the next by RTLD_NEXT. LINK is its name.
 */
#include <dlfcn.h>
#include <stdio.h>

#define TEXT(name) #name
#define NAME(link) TEXT(link)
#define JOIN(start, link) start##link
#define MARK(link) JOIN(chain_, link)

const char *chain(void);
int MARK(LINK)(void);

/* The program refers to it, so that the linker keeps the library. */
int MARK(LINK)(void) {
    return 1;
}

const char *chain(void) {
    const char *(*next)(void) = (const char *(*)(void))dlsym(RTLD_NEXT, "chain");
    static char text[64];
    snprintf(text, sizeof text, "%s %s", NAME(LINK), next ? next() : "(end)");
    return text;
}
