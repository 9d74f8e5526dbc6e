/* SPDX-License-Identifier: MIT
 *
 * A library whose names only look like the driver's.
 */
int cudnnCreate(void);
int cublasCreate_v2(void);
int curl_easy_init(void);
int cudaMalloc(void);
int cuMemAlloc(void);
int cuda_something(void);

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
