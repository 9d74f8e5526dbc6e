/* SPDX-License-Identifier: MIT
 *
 * Forks while another thread makes a memory pool that can be exported: that thread is held up where what is beneath it
 * enlarges a list, if anything does. The child then asks for a memory pool's end, which must come back.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda.h>
#include <pthread.h>

static _Thread_local volatile int holding;
static atomic_int held, forked;

/* Stands before libc's. */
void *realloc(void *old, size_t size) {
    static void *(*_Atomic real)(void *, size_t);
    if (!real) real = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
    if (holding && old == NULL) {
        atomic_store(&held, 1);
        while (!atomic_load(&forked)) usleep(1000);
    }
    return real(old, size);
}

static void *make_pool(void *unused) {
    const CUmemPoolProps property = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                     .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool made;
    holding = 1;
    const CUresult result = cuMemPoolCreate(&made, &property);
    holding = 0;
    atomic_store(&held, 1);
    (void)unused;
    if (result != CUDA_SUCCESS) printf("made: %d\n", (int)result);
    return NULL;
}

int main(void) {
    pthread_t thread;
    CUcontext context;
    CUmemoryPool pool;
    int status = 0;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
    if (cuDeviceGetDefaultMemPool(&pool, 0)) return 1;
    pthread_create(&thread, NULL, make_pool, NULL);
    while (!atomic_load(&held)) usleep(1000);
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        cuMemPoolDestroy(pool);
        raise(SIGKILL);
    }
    waitpid(child, &status, 0);
    atomic_store(&forked, 1);
    pthread_join(thread, NULL);
    printf("child came back: %d\n", WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    return 0;
}
