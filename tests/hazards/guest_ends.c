/* SPDX-License-Identifier: MIT
 *
 * Ends in the way that the first argument names, with live and cached blocks of both kinds, work under way, and threads
 * that allocate on and on; frees and allocates where programs do so late: in handlers and in destructors. Prints what
 * the late calls answer.
 */
#include "guest_pointers.h"

#include <pthread.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

enum { BLOCKS = 8 };

static void *plain[BLOCKS], *async[BLOCKS];
static int next;

static void use(const char *when) {
    void *p = NULL;
    size_t bytes, total;
    printf("%s: free %d", when, (int)cudaFree(plain[next]));
    printf(" %d", (int)cudaFreeAsync(async[next], 0));
    next++;
    printf(", of the other kinds %d", (int)cudaFreeAsync(plain[next], 0));
    printf(" %d", (int)cudaFree(async[next]));
    next++;
    printf(", info %d", (int)cudaMemGetInfo(&bytes, &total));
    printf(", allocate %d", (int)cudaMalloc(&p, 4096));
    if (p) printf(" and free %d", (int)cudaFree(p));
    p = NULL;
    printf(" %d", (int)cudaMallocAsync(&p, 4096, 0));
    if (p) printf(" and free %d", (int)cudaFreeAsync(p, 0));
    printf(", last error %d\n", (int)cudaGetLastError());
}

static void at_exit(void) {
    use("at exit");
}

static void at_the_quick(void) {
    use("at a quick exit");
}

static void __attribute__((destructor)) destructor(void) {
    if (!plain[0]) return;
    use("in a destructor");
    /* The program has made its last call: what the driver counts from now on is not its. */
    void (*reset)(void) = (void (*)(void))dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "sim_reset_calls");
    if (reset) reset();
}

static void *go_on(void *unused) {
    for (;;) {
        void *p = NULL, *q = NULL;
        cudaMalloc(&p, 4096);
        cudaMallocAsync(&q, 4096, cudaStreamPerThread);
        cudaFree(p);
        cudaFreeAsync(q, cudaStreamPerThread);
    }
    return unused;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*end)(int);
    } ends[] = {{"exit", exit}, {"_exit", _exit}, {"quick_exit", quick_exit}};
    pthread_t threads[2];
    void *cached;
    if (argc < 2) return 2;
    setvbuf(stdout, NULL, _IONBF, 0);
    if (cudaMalloc(&cached, MIB)) return 2;
    for (int i = 0; i < BLOCKS; i++)
        if (cudaMalloc(&plain[i], 4096) || cudaMallocAsync(&async[i], 4096, 0)) return 2;
    if (cudaFree(cached) || cudaMemsetAsync(plain[0], 1, 4096, 0)) return 2;
    if (argc == 3)
        for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, go_on, NULL);
    if (argc == 3) usleep(20000);
    atexit(at_exit);
    at_quick_exit(at_the_quick);
    for (size_t i = 0; i < COUNT(ends); i++)
        if (strcmp(argv[1], ends[i].name) == 0) ends[i].end(10 + (int)i);
    if (strcmp(argv[1], "abort") == 0) abort();
    return 6;
}
