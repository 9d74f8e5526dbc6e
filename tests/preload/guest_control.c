/* SPDX-License-Identifier: MIT
 *
 * A program over the driver that others ask things of by its control file: while it sleeps, works, captures, resets
 * its context, or does not have what one would expect. Prints what its own calls answer, which nobody's requests may
 * change but for the limit.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dirent.h>

#include "stream_guest.h"

#define EACH (32 * MIB)

enum { BLOCKS = 4, THREADS = 4 };

static void retain(void) {
    must(cuInit(0));
    must(cuDevicePrimaryCtxRetain(&primary, 0));
    must(cuCtxSetCurrent(primary));
}

/* Four segments, of which the first `kept` stay in use. */
static void cache_plain(CUdeviceptr blocks[BLOCKS], int kept) {
    for (int i = 0; i < BLOCKS; i++) blocks[i] = take_plain(EACH);
    for (int i = kept; i < BLOCKS; i++) must(cuMemFree(blocks[i]));
}

static void cache_async(void) {
    const CUstream stream = stream_new();
    const CUdeviceptr p = take(EACH, stream);
    must(cuMemFreeAsync(p, stream));
}

static void say_pair(size_t bytes) {
    CUdeviceptr p = 0;
    const CUresult result = cuMemAlloc(&p, bytes);
    printf("allocate: %d, free: %d\n", (int)result, result ? 0 : (int)cuMemFree(p));
}

static void say_idle(void) {
    CUdeviceptr blocks[BLOCKS];
    retain();
    cache_plain(blocks, 0);
    cache_async();
    wait_for_reader();
    say_pair(EACH);
}

static void say_live(void) {
    CUdeviceptr blocks[BLOCKS];
    retain();
    cache_plain(blocks, 2);
    wait_for_reader();
    say_pair(3 * EACH);
    wait_for_reader();
    say_pair(3 * EACH);
    for (int i = 0; i < 2; i++) must(cuMemFree(blocks[i]));
}

/* The first call of the pool comes after the reader. */
static void say_late(void) {
    retain();
    wait_for_reader();
    say_pair(EACH);
}

/* ---- threads that work meanwhile ---- */

static atomic_bool stop;
static atomic_uint failures, rounds;

static void *work(void *seed) {
    unsigned random = (unsigned)(uintptr_t)seed * 2654435761u + 1;
    must(cuCtxSetCurrent(primary));
    const CUstream stream = stream_new();
    while (!atomic_load(&stop)) {
        CUdeviceptr plain = 0, async = 0;
        random = random * 1664525u + 1013904223u;
        const size_t bytes = (size_t)(random >> 8) % (8 * MIB) + 1;
        if (cuMemAlloc(&plain, bytes) || cuMemFree(plain)) atomic_fetch_add(&failures, 1);
        if (cuMemAllocAsync(&async, bytes, stream) || cuMemFreeAsync(async, stream)) atomic_fetch_add(&failures, 1);
        atomic_fetch_add(&rounds, 1);
    }
    return NULL;
}

static void say_busy(void) {
    pthread_t threads[THREADS];
    retain();
    for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    wait_for_reader();
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    printf("worked: %d, failures: %u\n", atomic_load(&rounds) > 0, atomic_load(&failures));
}

/* A context that comes and goes. */
static void *reset(void *unused) {
    (void)unused;
    must(cuCtxSetCurrent(primary));
    while (!atomic_load(&stop)) {
        CUdeviceptr p = 0;
        if (cuMemAlloc(&p, EACH) || cuMemFree(p)) atomic_fetch_add(&failures, 1);
        cache_async();
        if (cuDevicePrimaryCtxReset(0)) atomic_fetch_add(&failures, 1);
        must(cuDevicePrimaryCtxRetain(&primary, 0));
        must(cuCtxSetCurrent(primary));
        atomic_fetch_add(&rounds, 1);
    }
    return NULL;
}

static void say_reset(void) {
    pthread_t thread;
    retain();
    pthread_create(&thread, NULL, reset, NULL);
    while (atomic_load(&rounds) < 2) usleep(1000);
    wait_for_reader();
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    printf("worked: 1, failures: %u\n", atomic_load(&failures));
}

/* ---- captures, contexts ---- */

static void say_capture(void) {
    CUdeviceptr blocks[BLOCKS];
    CUgraph graph = NULL;
    retain();
    cache_plain(blocks, 0);
    cache_async();
    const CUstream stream = stream_new();
    SAY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    wait_for_reader();
    SAY(cuStreamEndCapture(stream, &graph));
    printf("a graph: %d\n", graph != NULL);
    wait_for_reader();
}

/* Stream-ordered memory alone, in a context of its own, and no primary one. */
static void say_created(void) {
    CUcontext context;
    must(cuInit(0));
    must(cuCtxCreate(&context, NULL, 0, 0));
    cache_async();
    must(cuCtxSynchronize());
    wait_for_reader();
    SAY(cuCtxDestroy(context));
}

/* What was cached stays, and no context with it. */
static void say_destroyed(void) {
    CUcontext context;
    must(cuInit(0));
    must(cuCtxCreate(&context, NULL, 0, 0));
    cache_async();
    must(cuCtxSynchronize());
    must(cuCtxDestroy(context));
    wait_for_reader();
}

/* ---- what becomes of the library's own ---- */

static void say_fork(void) {
    CUdeviceptr blocks[BLOCKS];
    retain();
    cache_plain(blocks, 0);
    int line[2];
    if (pipe(line) != 0) exit(3);
    const pid_t child = fork();
    if (child == 0) {
        char byte;
        CUdeviceptr p;
        close(line[1]);
        (void)cuMemAlloc(&p, MIB);
        (void)!read(line[0], &byte, 1);
        exit(0);
    }
    printf("child %d\n", (int)child);
    wait_for_reader();
    close(line[1]);
    int status = 0;
    waitpid(child, &status, 0);
    printf("child's status: %d\n", status);
    wait_for_reader();
}

/* The control file's descriptor is closed, and a file of the program's own opened by its number. */
static void say_closed(void) {
    CUdeviceptr blocks[BLOCKS];
    char link[64], path[256];
    retain();
    cache_plain(blocks, 0);
    const int own = open("/dev/shm", O_TMPFILE | O_RDWR, 0600);
    int taken = -1;
    DIR *folder = opendir("/proc/self/fd");
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        snprintf(link, sizeof link, "/proc/self/fd/%.20s", entry->d_name);
        const ssize_t length = readlink(link, path, sizeof path - 1);
        path[length > 0 ? length : 0] = '\0';
        if (strstr(path, "poolcuda-control-")) taken = atoi(entry->d_name);
    }
    closedir(folder);
    printf("taken: %d\n", taken >= 0 && dup2(own, taken) == taken);
    wait_for_reader();
    printf("bytes in the own file: %d\n", (int)lseek(taken, 0, SEEK_END));
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*say)(void);
    } parts[] = {{"idle", say_idle},   {"live", say_live},       {"late", say_late},       {"busy", say_busy},
                 {"reset", say_reset}, {"capture", say_capture}, {"created", say_created}, {"destroyed", say_destroyed},
                 {"fork", say_fork},   {"closed", say_closed}};
    setvbuf(stdout, NULL, _IONBF, 0);
    for (size_t i = 0; argc == 2 && i < sizeof parts / sizeof parts[0]; i++) {
        if (strcmp(argv[1], parts[i].name) != 0) continue;
        parts[i].say();
        return 0;
    }
    return 2;
}
