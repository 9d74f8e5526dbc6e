/* SPDX-License-Identifier: MIT
 *
 * Another process that opens the program's memory: it is told what to do, and answers, on a socket that is its standard
 * input; with the end of that it ends too.
 */
#ifndef RANDOM_IMPORTER_H
#define RANDOM_IMPORTER_H

#include <sys/types.h>

#include <cuda.h>

#include "kernels.h"

enum importer_task { IMPORTER_OPEN, IMPORTER_USE, IMPORTER_CLOSE };

struct importer_request {
    enum importer_task task;
    bool by_driver;
    int device;
    CUipcMemHandle handle;    /* OPEN */
    struct kernel_touch used; /* USE; of CLOSE the address */
    uint32_t number;
};

struct importer_answer {
    int code;
    uint64_t address;
    size_t wrongs;
    struct kernel_wrong wrong; /* the first */
};

struct importer {
    pid_t process; /* 0: none */
    int socket;
    bool pooled;
};

/* Starts it: this very program, with the pool if we have it and `pooled` says so. */
bool importer_start(struct importer *importer, bool pooled);
/* False when it did not answer. */
bool importer_ask(struct importer *importer, const struct importer_request *request, struct importer_answer *answer);
void importer_kill(struct importer *importer);
/* Lets it end by itself; its exit status, or less than 0. */
int importer_stop(struct importer *importer);

/* What that process does. */
int importer_run(void);

/* As cudaSetDevice since CUDA 12: the device's context is current, be the runtime older. */
int device_use(int device);

/* Is this process under the pool? */
bool importer_we_are_pooled(void);

#endif
