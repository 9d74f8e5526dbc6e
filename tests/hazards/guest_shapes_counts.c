/* SPDX-License-Identifier: MIT
 *
 * A program on a machine without a driver, which goes on trying: prints how often the loaded objects are walked through
 * for one of its calls.
 */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>

int cudaMalloc(void **out, size_t bytes);

static int walks;

int dl_iterate_phdr(int (*callback)(struct dl_phdr_info *, size_t, void *), void *data) {
    static int (*next)(int (*)(struct dl_phdr_info *, size_t, void *), void *);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "dl_iterate_phdr");
    walks++;
    return next(callback, data);
}

int main(void) {
    void *p;
    printf("first: %d\n", cudaMalloc(&p, 4096));
    const int before = walks;
    int code = 0;
    for (int i = 0; i < 100; i++) code |= cudaMalloc(&p, 4096);
    printf("then: %d\n", code);
    printf("walks a call: %s\n", (walks - before) / 100 <= 4 ? "few" : "many");
    return 0;
}
