/* SPDX-License-Identifier: MIT
 *
 * A program whose calls and answers test_start.py looks at, on whatever driver it finds. Its argument chooses what it
 * does; each line of its output is a name and a figure.
 */
#include <cuda_runtime_api.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stand_in_driver.h"

#define SHOW(call) printf("%s %d\n", #call, (int)(call))

static void show_look_ups(void) {
    cudaFree(NULL);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    size_t (*ask)(const struct stand_in_look_up **);
    *(void **)&ask = driver ? dlsym(driver, "stand_in_look_ups") : NULL;
    const struct stand_in_look_up *list = NULL;
    const size_t count = ask ? ask(&list) : 0;
    for (size_t i = 0; i < count; i++)
        printf("%s %d %llu %d %d %d\n", *list[i].name ? list[i].name : "-", list[i].version, list[i].flags,
               list[i].status_given, list[i].initialised, list[i].form);
}

static void show_answers(void) {
    void *pointer = (void *)1;
    int version = -1;
    SHOW(cudaPeekAtLastError());
    SHOW(cudaMalloc(NULL, 1));
    SHOW(cudaMalloc(&pointer, 0));
    printf("pointer %d\n", pointer ? 1 : 0);
    SHOW(cudaSetDevice(-1));
    SHOW(cudaGetLastError());
    SHOW(cudaGetLastError());
    SHOW(cudaMalloc(&pointer, 16));
    SHOW(cudaFree(pointer));
    SHOW(cudaEventSynchronize(NULL));
    SHOW(cudaGetLastError());
    SHOW(cudaDriverGetVersion(&version));
    printf("driver %d\n", version);
    SHOW(cudaRuntimeGetVersion(&version));
    printf("runtime %d\n", version);
}

static void show_child(void) {
    SHOW(cudaFree(NULL));
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) _exit(cudaFree(NULL) == cudaGetLastError() ? (int)cudaPeekAtLastError() : 255);
    int status = 0;
    waitpid(child, &status, 0);
    printf("child %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    SHOW(cudaFree(NULL));
}

static int at_end; /* whether the destructor shows what it is answered */

static void show_at_exit(void) {
    printf("handler %d\n", (int)cudaFree(NULL));
    fflush(stdout);
}

__attribute__((destructor)) static void show_in_destructor(void) {
    if (!at_end) return;
    printf("destructor %d\n", (int)cudaFree(NULL));
    fflush(stdout);
}

static void show_end(void) {
    at_end = 1;
    atexit(show_at_exit); /* before the first call, so that it runs after the runtime's own */
    SHOW(cudaFree(NULL));
}

/* Whether a context is current after a device has been chosen, and after it has been used. */
static void show_choice(void) {
    int (*get_current)(void **) = NULL;
    void *context = NULL;
    SHOW(cudaSetDevice(0));
    SHOW(cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", (void **)&get_current, 4000, 0, NULL));
    if (!get_current) return;
    get_current(&context);
    printf("chosen %d\n", context != NULL);
    SHOW(cudaFree(NULL));
    get_current(&context);
    printf("used %d\n", context != NULL);
}

static void show_unsimulated(void) {
    cudaArray_t array;
    SHOW(cudaMallocArray(&array, NULL, 8, 8, 0));
    SHOW(cudaFreeArray(NULL));
    SHOW(cudaFreeArray(NULL));
    SHOW(cudaGetLastError());
}

int main(int argc, char **argv) {
    const char *wanted = argc == 2 ? argv[1] : "";
    if (strcmp(wanted, "look-ups") == 0) show_look_ups();
    if (strcmp(wanted, "answers") == 0) show_answers();
    if (strcmp(wanted, "child") == 0) show_child();
    if (strcmp(wanted, "end") == 0) show_end();
    if (strcmp(wanted, "choice") == 0) show_choice();
    if (strcmp(wanted, "unsimulated") == 0) show_unsimulated();
    return 0;
}
