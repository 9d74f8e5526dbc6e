/* SPDX-License-Identifier: MIT
 *
 * A library whose names only look like the driver's, or are names of the driver's for functions of its own.
 */
int cudnnCreate(void);
int cublasCreate_v2(void);
int curl_easy_init(void);
int cudaMalloc(void);
int cuMemAlloc(void);
int cuda_something(void);
int cuMemAlloc_v2(void);
int cuMemFreeAsync_ptsz(void);

int cudnnCreate(void) {
    return 1;
}
int cublasCreate_v2(void) {
    return 2;
}
int curl_easy_init(void) {
    return 3;
}
int cudaMalloc(void) {
    return 4;
}
int cuMemAlloc(void) {
    return 5;
}
int cuda_something(void) {
    return 6;
}
int cuMemAlloc_v2(void) {
    return 7;
}
int cuMemFreeAsync_ptsz(void) {
    return 8;
}
