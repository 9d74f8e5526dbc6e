/* SPDX-License-Identifier: MIT
 *
 * Memory through the runtime: answers to sizes 0, NULL and too much, and bytes that come back as they went.
 */
#include <stdlib.h>

#include "fixture.h"

static const size_t too_much = SIZE_MAX / 2;

static void size_0_succeeds_with_null(void **state) {
    (void)state;
    void *pointer = (void *)1;
    size_t pitch = 1;
    CHECK_CUDA(cudaMalloc(&pointer, 0));
    assert_null(pointer);
    pointer = (void *)1;
    CHECK_CUDA(cudaMallocHost(&pointer, 0));
    assert_null(pointer);
    pointer = (void *)1;
    CHECK_CUDA(cudaHostAlloc(&pointer, 0, 0));
    assert_null(pointer);
    pointer = (void *)1;
    CHECK_CUDA(cudaMallocManaged(&pointer, 0, cudaMemAttachGlobal));
    assert_null(pointer);
    pointer = (void *)1;
    CHECK_CUDA(cudaMallocAsync(&pointer, 0, NULL));
    assert_null(pointer);
    pointer = (void *)1;
    CHECK_CUDA(cudaMallocPitch(&pointer, &pitch, 0, 4));
    assert_null(pointer);
    pointer = (void *)1;
    CHECK_CUDA(cudaMallocPitch(&pointer, &pitch, 4, 0));
    assert_null(pointer);
}

static void null_result_answers_1(void **state) {
    (void)state;
    size_t pitch;
    void *pointer;
    const struct cudaExtent extent = {16, 4, 2};
    CHECK_FAILS(cudaMalloc(NULL, 16), cudaErrorInvalidValue);
    CHECK_FAILS(cudaMalloc(NULL, 0), cudaErrorInvalidValue);
    CHECK_FAILS(cudaMallocHost(NULL, 16), cudaErrorInvalidValue);
    CHECK_FAILS(cudaHostAlloc(NULL, 16, 0), cudaErrorInvalidValue);
    CHECK_FAILS(cudaMallocManaged(NULL, 16, cudaMemAttachGlobal), cudaErrorInvalidValue);
    CHECK_FAILS(cudaMallocAsync(NULL, 16, NULL), cudaErrorInvalidValue);
    CHECK_FAILS(cudaMallocFromPoolAsync(&pointer, 16, NULL, NULL), cudaErrorInvalidValue);
    CHECK_FAILS(cudaMallocPitch(NULL, &pitch, 16, 4), cudaErrorInvalidValue);
    CHECK_FAILS(cudaMallocPitch(&pointer, NULL, 16, 4), cudaErrorInvalidValue);
    CHECK_FAILS(cudaMalloc3D(NULL, extent), cudaErrorInvalidValue);
}

static void too_much_answers_2(void **state) {
    (void)state;
    void *pointer;
    size_t pitch;
    struct cudaPitchedPtr pitched;
    CHECK_FAILS(cudaMalloc(&pointer, too_much), cudaErrorMemoryAllocation);
    CHECK_FAILS(cudaMalloc(&pointer, SIZE_MAX), cudaErrorMemoryAllocation);
    CHECK_FAILS(cudaMallocAsync(&pointer, SIZE_MAX, NULL), cudaErrorMemoryAllocation);
    CHECK_FAILS(cudaMallocHost(&pointer, SIZE_MAX), cudaErrorMemoryAllocation);
    CHECK_FAILS(cudaMallocPitch(&pointer, &pitch, SIZE_MAX, 4), cudaErrorInvalidValue);
    CHECK_FAILS(cudaMallocPitch(&pointer, &pitch, 4, SIZE_MAX), cudaErrorMemoryAllocation);
    CHECK_FAILS(cudaMalloc3D(&pitched, (struct cudaExtent){SIZE_MAX, 4, 4}), cudaErrorInvalidValue);
    CHECK_FAILS(cudaMalloc3D(&pitched, (struct cudaExtent){4, SIZE_MAX, 4}), cudaErrorMemoryAllocation);
    CHECK_FAILS(cudaMalloc3D(&pitched, (struct cudaExtent){4, 4, SIZE_MAX}), cudaErrorMemoryAllocation);
}

static void free_of_null_and_of_foreign_pointers(void **state) {
    (void)state;
    char host[64];
    char *pointer;
    CHECK_CUDA(cudaFree(NULL));
    CHECK_CUDA(cudaFreeHost(NULL));
    CHECK_FAILS(cudaFreeAsync(NULL, NULL), cudaErrorInvalidValue);
    CHECK_FAILS(cudaHostUnregister(NULL), cudaErrorInvalidValue);
    CHECK_FAILS(cudaFree(host), cudaErrorInvalidValue);
    CHECK_CUDA(cudaMalloc((void **)&pointer, 4096));
    CHECK_FAILS(cudaFree(pointer + 512), cudaErrorInvalidValue);
    CHECK_CUDA(cudaFree(pointer));
    CHECK_FAILS(cudaFree(pointer), cudaErrorInvalidValue);
}

static void bytes_survive_a_round_trip(void **state) {
    (void)state;
    enum { SIZE = 100000 };
    unsigned char *sent = malloc(SIZE), *received = calloc(1, SIZE);
    void *one, *other;
    cudaStream_t stream;
    for (size_t i = 0; i < SIZE; i++) sent[i] = (unsigned char)(i * 7 + i / 251);
    CHECK_CUDA(cudaMalloc(&one, SIZE));
    CHECK_CUDA(cudaMalloc(&other, SIZE));
    CHECK_CUDA(cudaMemcpy(one, sent, SIZE, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(other, one, SIZE, cudaMemcpyDeviceToDevice));
    CHECK_CUDA(cudaMemcpy(received, other, SIZE, cudaMemcpyDeviceToHost));
    assert_memory_equal(sent, received, SIZE);

    memset(received, 0, SIZE);
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaMemsetAsync(one, 0x5a, SIZE, stream));
    CHECK_CUDA(cudaMemcpyAsync(one, sent, SIZE / 2, cudaMemcpyDefault, stream));
    CHECK_CUDA(cudaMemcpyAsync(other, one, SIZE, cudaMemcpyDeviceToDevice, stream));
    CHECK_CUDA(cudaMemcpyAsync(received, other, SIZE, cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    assert_memory_equal(sent, received, SIZE / 2);
    for (size_t i = SIZE / 2; i < SIZE; i++) assert_int_equal(received[i], 0x5a);

    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaFree(one));
    CHECK_CUDA(cudaFree(other));
    free(sent);
    free(received);
}

static void bad_copies_are_refused(void **state) {
    (void)state;
    char host[16];
    void *pointer;
    CHECK_CUDA(cudaMalloc(&pointer, 16));
    CHECK_FAILS(cudaMemcpy(pointer, host, 16, (enum cudaMemcpyKind)9), cudaErrorInvalidMemcpyDirection);
    CHECK_FAILS(cudaMemcpyAsync(pointer, host, 16, (enum cudaMemcpyKind)9, NULL), cudaErrorInvalidMemcpyDirection);
    CHECK_FAILS(cudaMemcpy2D(pointer, 4, host, 4, 8, 2, cudaMemcpyHostToDevice), cudaErrorInvalidPitchValue);
    CHECK_CUDA(cudaMemcpy(pointer, host, 0, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemset(pointer, 0, 0));
    CHECK_CUDA(cudaFree(pointer));
}

static void rows_of_pitched_memory_survive_a_round_trip(void **state) {
    (void)state;
    enum { WIDTH = 100, HEIGHT = 7 };
    unsigned char sent[HEIGHT][WIDTH], received[HEIGHT][WIDTH + 3];
    void *pointer;
    size_t pitch;
    for (size_t i = 0; i < sizeof(sent); i++) sent[i / WIDTH][i % WIDTH] = (unsigned char)i;
    CHECK_CUDA(cudaMallocPitch(&pointer, &pitch, WIDTH, HEIGHT));
    assert_true(pitch >= WIDTH);
    CHECK_CUDA(cudaMemset2D(pointer, pitch, 0, WIDTH, HEIGHT));
    CHECK_CUDA(cudaMemcpy2D(pointer, pitch, sent, WIDTH, WIDTH, HEIGHT, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemset2D((char *)pointer + 2 * pitch, pitch, 0xee, 10, 2));
    memset(received, 1, sizeof(received));
    CHECK_CUDA(cudaMemcpy2D(received, WIDTH + 3, pointer, pitch, WIDTH, HEIGHT, cudaMemcpyDeviceToHost));
    for (size_t row = 0; row < HEIGHT; row++) {
        for (size_t column = 0; column < WIDTH; column++)
            assert_int_equal(received[row][column], (row == 2 || row == 3) && column < 10 ? 0xee : sent[row][column]);
        assert_int_equal(received[row][WIDTH], 1);
    }
    CHECK_CUDA(cudaFree(pointer));
}

static void boxes_survive_a_round_trip(void **state) {
    (void)state;
    enum { WIDTH = 24, HEIGHT = 5, DEPTH = 3 };
    unsigned char sent[DEPTH][HEIGHT][WIDTH], received[DEPTH][HEIGHT][WIDTH] = {0};
    const struct cudaExtent extent = {WIDTH, HEIGHT, DEPTH};
    struct cudaPitchedPtr pitched;
    for (size_t i = 0; i < sizeof(sent); i++) ((unsigned char *)sent)[i] = (unsigned char)(i * 3);
    CHECK_CUDA(cudaMalloc3D(&pitched, extent));
    assert_int_equal(pitched.xsize, WIDTH);
    assert_int_equal(pitched.ysize, HEIGHT);
    CHECK_CUDA(cudaMemset3D(pitched, 0x11, extent));
    struct cudaMemcpy3DParms up = {
        .srcPtr = {sent, WIDTH, WIDTH, HEIGHT}, .dstPtr = pitched, .extent = extent, .kind = cudaMemcpyHostToDevice};
    up.extent.depth = DEPTH - 1;
    CHECK_CUDA(cudaMemcpy3D(&up));
    const struct cudaMemcpy3DParms down = {.srcPtr = pitched,
                                           .dstPtr = {received, WIDTH, WIDTH, HEIGHT},
                                           .extent = extent,
                                           .kind = cudaMemcpyDeviceToHost};
    CHECK_CUDA(cudaMemcpy3D(&down));
    assert_memory_equal(sent, received, sizeof(sent) / DEPTH * (DEPTH - 1));
    for (size_t i = 0; i < WIDTH * HEIGHT; i++) assert_int_equal(received[DEPTH - 1][i / WIDTH][i % WIDTH], 0x11);
    CHECK_FAILS(cudaMemcpy3D(NULL), cudaErrorInvalidValue);
    CHECK_CUDA(cudaFree(pitched.ptr));
}

static void kinds_of_memory_are_told_apart(void **state) {
    (void)state;
    char local;
    void *device, *managed, *host;
    struct cudaPointerAttributes attributes;
    CHECK_CUDA(cudaMalloc(&device, 4096));
    CHECK_CUDA(cudaMallocManaged(&managed, 4096, cudaMemAttachGlobal));
    CHECK_CUDA(cudaMallocHost(&host, 4096));
    CHECK_CUDA(cudaPointerGetAttributes(&attributes, device));
    assert_int_equal(attributes.type, cudaMemoryTypeDevice);
    assert_int_equal(attributes.device, 0);
    assert_ptr_equal(attributes.devicePointer, device);
    assert_null(attributes.hostPointer);
    CHECK_CUDA(cudaPointerGetAttributes(&attributes, managed));
    assert_int_equal(attributes.type, cudaMemoryTypeManaged);
    assert_ptr_equal(attributes.hostPointer, managed);
    CHECK_CUDA(cudaPointerGetAttributes(&attributes, host));
    assert_int_equal(attributes.type, cudaMemoryTypeHost);
    CHECK_CUDA(cudaPointerGetAttributes(&attributes, &local));
    assert_int_equal(attributes.type, cudaMemoryTypeUnregistered);
    assert_int_equal(attributes.device, cudaInvalidDeviceId);
    CHECK_FAILS(cudaPointerGetAttributes(&attributes, NULL), cudaErrorInvalidValue);
    CHECK_CUDA(cudaFree(device));
    CHECK_CUDA(cudaFree(managed));
    CHECK_CUDA(cudaFreeHost(host));
}

static void pool_memory_counts_in_its_pool(void **state) {
    (void)state;
    cudaMemPool_t pool, other;
    uint64_t used = 1, before;
    void *pointer, *from_other;
    CHECK_CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK_CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &before));
    CHECK_CUDA(cudaMallocAsync(&pointer, 2048, NULL));
    CHECK_CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    assert_int_equal(used, before + 2048);
    CHECK_CUDA(cudaFreeAsync(pointer, NULL));

    const struct cudaMemPoolProps properties = {.allocType = cudaMemAllocationTypePinned,
                                                .location = {.type = cudaMemLocationTypeDevice, .id = 0}};
    CHECK_CUDA(cudaMemPoolCreate(&other, &properties));
    CHECK_CUDA(cudaMallocFromPoolAsync(&from_other, 4096, other, NULL));
    CHECK_CUDA(cudaMemPoolGetAttribute(other, cudaMemPoolAttrUsedMemCurrent, &used));
    assert_int_equal(used, 4096);
    CHECK_CUDA(cudaFreeAsync(from_other, NULL));
    CHECK_CUDA(cudaStreamSynchronize(NULL));
    CHECK_CUDA(cudaMemPoolDestroy(other));
    CHECK_FAILS(cudaMemPoolDestroy(pool), cudaErrorInvalidValue);
}

static void free_memory_comes_back(void **state) {
    (void)state;
    size_t before, during, after, total;
    void *pointer;
    CHECK_CUDA(cudaMemGetInfo(&before, &total));
    CHECK_CUDA(cudaMalloc(&pointer, 8 << 20));
    CHECK_CUDA(cudaMemGetInfo(&during, &total));
    CHECK_CUDA(cudaFree(pointer));
    CHECK_CUDA(cudaMemGetInfo(&after, &total));
    assert_int_equal(before - during, 8 << 20);
    assert_int_equal(after, before);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(size_0_succeeds_with_null),
    cmocka_unit_test(null_result_answers_1),
    cmocka_unit_test(too_much_answers_2),
    cmocka_unit_test(free_of_null_and_of_foreign_pointers),
    cmocka_unit_test(bytes_survive_a_round_trip),
    cmocka_unit_test(bad_copies_are_refused),
    cmocka_unit_test(rows_of_pitched_memory_survive_a_round_trip),
    cmocka_unit_test(boxes_survive_a_round_trip),
    cmocka_unit_test(kinds_of_memory_are_told_apart),
    cmocka_unit_test(pool_memory_counts_in_its_pool),
    cmocka_unit_test(free_memory_comes_back),
};

TESTING_MAIN(tests)
