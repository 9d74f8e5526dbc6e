/* SPDX-License-Identifier: MIT
 *
 * Ends, or forks, in the way that the first argument names, with live and cached blocks, and frees where programs free
 * late: in a destructor, in an atexit handler. Prints what the late calls answer.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#include "sequence.h"

static void *early, *late, *last;

static void at_exit(void) {
    printf("free at exit: %d\n", (int)cudaFree(late));
    printf("allocate at exit: %d\n", (int)cudaMalloc(&late, 4096));
}

static void __attribute__((destructor)) destructor(void) {
    if (last) printf("free in a destructor: %d\n", (int)cudaFree(last));
    fflush(stdout);
}

/* What a child may do with what it inherited. */
static void fork_and_use(const char *when) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        void *p = NULL;
        int code = cudaMalloc(&p, 4096);
        printf("%s: child allocates: %d\n", when, code);
        if (early) printf("%s: child frees its parent's: %d\n", when, (int)cudaFree(early));
        if (code == 0) printf("%s: child frees: %d\n", when, (int)cudaFree(p));
        fflush(stdout);
        _exit(3);
    }
    int status = 0;
    waitpid(child, &status, 0);
    printf("%s: child's status: %d\n", when, WEXITSTATUS(status));
}

/* ---- a fork while another thread makes its first call: it is held up where the figures get their pages ---- */

static atomic_bool hold, held_up, first_made;

int posix_fallocate(int fd, off_t offset, off_t bytes) {
    atomic_store(&held_up, true);
    while (atomic_load(&hold)) usleep(1000);
    return fallocate(fd, 0, offset, bytes) == 0 ? 0 : errno;
}

static void *first_call(void *unused) {
    (void)unused;
    cudaMalloc(&early, MIB);
    atomic_store(&first_made, true);
    return NULL;
}

static void fork_amid(void) {
    pthread_t thread;
    atomic_store(&hold, true);
    pthread_create(&thread, NULL, first_call, NULL);
    while (!atomic_load(&held_up) && !atomic_load(&first_made)) usleep(1000);
    const pid_t child = fork();
    if (child == 0) {
        void *p = NULL;
        alarm(20);
        atomic_store(&hold, false); /* here: it may get figures of its own */
        cudaMalloc(&p, 4096);
        raise(SIGKILL); /* and no _exit, at which the thread sanitizer looks for its parent's threads */
    }
    atomic_store(&hold, false);
    int status = 0;
    waitpid(child, &status, 0);
    pthread_join(thread, NULL);
    printf("amid: child came back from its call: %d\n", WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* ---- a fork while another thread's look-up asks the driver about each name: it is slow (SIM_LATENCY) ---- */

static void *look_up(void *unused) {
    (void)unused;
    return dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemAlloc_v2");
}

static void fork_looking_up(void) {
    pthread_t thread;
    dlopen("libcuda.so.1", RTLD_NOW);
    pthread_create(&thread, NULL, look_up, NULL);
    usleep(100000);
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        look_up(NULL);
        raise(SIGKILL);
    }
    int status = 0;
    waitpid(child, &status, 0);
    pthread_join(thread, NULL);
    printf("looking up: child came back: %d\n", WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    if (strcmp(argv[1], "fork_looking_up") == 0) {
        fork_looking_up();
        return 0;
    }
    if (strcmp(argv[1], "fork_amid") == 0) {
        fork_amid();
        return 0;
    }
    if (strcmp(argv[1], "fork") == 0) fork_and_use("before");
    if (cudaMalloc(&early, MIB) || cudaMalloc(&late, MIB) || cudaMalloc(&last, MIB)) return 1;
    if (strcmp(argv[1], "fork") == 0) {
        fork_and_use("after");
        wait_for_reader();
        last = NULL;
        return cudaFree(early) || cudaFree(late);
    }
    if (cudaFree(early)) return 1;
    if (strcmp(argv[1], "wait") == 0) wait_for_reader();
    if (strcmp(argv[1], "_exit") == 0) _exit(4);
    if (strcmp(argv[1], "abort") == 0) abort();
    if (strcmp(argv[1], "kill") == 0) raise(SIGKILL);
    atexit(at_exit);
    if (strcmp(argv[1], "exit") == 0) exit(5);
    return 6;
}
