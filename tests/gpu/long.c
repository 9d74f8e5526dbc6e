/* SPDX-License-Identifier: MIT
 *
 * Mixed work near the end of the device's memory: long SECONDS SHARE. Threads allocate and free blocks of all sizes, by
 * cudaMalloc and in the order of streams, until they hold up to SHARE percent of the memory; each block is stamped and
 * looked at before it is freed. Meanwhile memory of another kind (cudaMallocPitch) is taken and given back in large
 * pieces, so that what is cached has to go back. Prints one JSON object; at the end nothing is live.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda_runtime_api.h>

enum { THREADS = 4, BLOCKS = 512, STAMP = 64, OUT_OF_MEMORY = 2 };

struct block {
    char *address;
    size_t bytes;
    unsigned char stamp;
    bool async;
};

struct worker {
    pthread_t thread;
    unsigned number;
    cudaStream_t stream;
    struct block blocks[BLOCKS];
    uint64_t random;
};

static atomic_bool stopping;
static atomic_size_t live;
static atomic_ulong allocations, frees, refused, wrong, pressures, pressures_refused;
static atomic_int first_error;
static size_t total, most;

static void note_error(int code) {
    int none = 0;
    if (code && code != OUT_OF_MEMORY) atomic_compare_exchange_strong(&first_error, &none, code);
}

static uint64_t next(struct worker *worker) {
    worker->random ^= worker->random << 13;
    worker->random ^= worker->random >> 7;
    worker->random ^= worker->random << 17;
    return worker->random;
}

/* Most are small; a few take up to a 64th of the memory. */
static size_t some_bytes(struct worker *worker) {
    const uint64_t kind = next(worker) % 100, any = next(worker);
    if (kind < 50) return 512 + any % (64 << 10);
    if (kind < 85) return (64 << 10) + any % (8 << 20);
    return (8 << 20) + any % (total / 64);
}

static void stamp(struct worker *worker, struct block *block) {
    const size_t bytes = block->bytes < STAMP ? block->bytes : STAMP;
    note_error(cudaMemsetAsync(block->address, block->stamp, bytes, worker->stream));
    note_error(cudaMemsetAsync(block->address + block->bytes - bytes, block->stamp, bytes, worker->stream));
}

static void look(struct worker *worker, const struct block *block) {
    unsigned char ends[2 * STAMP];
    memset(ends, block->stamp, sizeof ends);
    const size_t bytes = block->bytes < STAMP ? block->bytes : STAMP;
    note_error(cudaMemcpyAsync(ends, block->address, bytes, cudaMemcpyDeviceToHost, worker->stream));
    note_error(cudaMemcpyAsync(ends + STAMP, block->address + block->bytes - bytes, bytes, cudaMemcpyDeviceToHost,
                               worker->stream));
    note_error(cudaStreamSynchronize(worker->stream));
    for (size_t i = 0; i < sizeof ends; i++)
        if (ends[i] != block->stamp) {
            atomic_fetch_add(&wrong, 1);
            return;
        }
}

static void give_back(struct worker *worker, struct block *block) {
    if (next(worker) % 4 == 0) look(worker, block);
    /* A plain free comes after the stream's work by itself; with POOL_FREE=event the memory waits for it. */
    note_error(block->async ? cudaFreeAsync(block->address, worker->stream) : cudaFree(block->address));
    atomic_fetch_sub(&live, block->bytes);
    atomic_fetch_add(&frees, 1);
    block->address = NULL;
}

static void take(struct worker *worker, struct block *block) {
    void *address = NULL;
    block->bytes = some_bytes(worker);
    if (atomic_load(&live) + block->bytes > most) return;
    block->async = next(worker) % 3 == 0;
    block->stamp = (unsigned char)(1 + next(worker) % 250);
    const int code =
        block->async ? cudaMallocAsync(&address, block->bytes, worker->stream) : cudaMalloc(&address, block->bytes);
    note_error(code);
    if (code) {
        atomic_fetch_add(&refused, code == OUT_OF_MEMORY);
        cudaGetLastError();
        return;
    }
    block->address = address;
    atomic_fetch_add(&live, block->bytes);
    atomic_fetch_add(&allocations, 1);
    stamp(worker, block);
}

static void *run(void *argument) {
    struct worker *const worker = argument;
    note_error(cudaStreamCreateWithFlags(&worker->stream, cudaStreamNonBlocking));
    worker->random = 88172645463325252u + worker->number;
    while (!atomic_load(&stopping) && !atomic_load(&first_error)) {
        struct block *const block = &worker->blocks[next(worker) % BLOCKS];
        if (block->address)
            give_back(worker, block);
        else
            take(worker, block);
    }
    for (int i = 0; i < BLOCKS; i++)
        if (worker->blocks[i].address) give_back(worker, &worker->blocks[i]);
    note_error(cudaStreamSynchronize(worker->stream));
    return NULL;
}

static void *press(void *unused) {
    const struct timespec a_while = {0, 150000000};
    while (!atomic_load(&stopping)) {
        void *piece = NULL;
        size_t pitch;
        const int code = cudaMallocPitch(&piece, &pitch, 1 << 20, total / 20 >> 20);
        note_error(code);
        atomic_fetch_add(&pressures, 1);
        if (code) {
            atomic_fetch_add(&pressures_refused, 1);
            cudaGetLastError();
        }
        nanosleep(&a_while, NULL);
        if (!code) note_error(cudaFree(piece));
        nanosleep(&a_while, NULL);
    }
    return unused;
}

int main(int argc, char **argv) {
    static struct worker workers[THREADS];
    pthread_t pressure;
    size_t free_bytes;
    if (argc < 3 || cudaMemGetInfo(&free_bytes, &total) != cudaSuccess) return 2;
    most = total / 100 * (size_t)atoi(argv[2]);
    const struct timespec duration = {atoi(argv[1]), 0};
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].number = i;
        pthread_create(&workers[i].thread, NULL, run, &workers[i]);
    }
    pthread_create(&pressure, NULL, press, NULL);
    nanosleep(&duration, NULL);
    atomic_store(&stopping, true);
    for (unsigned i = 0; i < THREADS; i++) pthread_join(workers[i].thread, NULL);
    pthread_join(pressure, NULL);
    note_error(cudaDeviceSynchronize());
    printf("{\"allocations\": %lu, \"frees\": %lu, \"refused\": %lu, \"wrong\": %lu, \"pressures\": %lu, "
           "\"pressures_refused\": %lu, "
           "\"first_error\": %d, \"live\": %zu, \"total\": %zu}\n",
           atomic_load(&allocations), atomic_load(&frees), atomic_load(&refused), atomic_load(&wrong),
           atomic_load(&pressures), atomic_load(&pressures_refused), atomic_load(&first_error), atomic_load(&live),
           total);
    puts("ready");
    fflush(stdout);
    (void)getchar();
    return atomic_load(&first_error) != 0;
}
