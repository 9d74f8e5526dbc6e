// SPDX-License-Identifier: MIT
//
// The kernels that cuda.py launches: each keeps its stream busy for a stated time, and does one thing then.
#include <cstdio>

#define KERNEL extern "C" __global__ void

static __device__ void wait(unsigned long long nanoseconds) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - begin < nanoseconds);
}

// Writes to the byte, where one is given. An address that is none makes it fail.
KERNEL touch(unsigned long long nanoseconds, unsigned char *byte) {
    wait(nanoseconds);
    if (byte) *byte = 1;
}

// Takes 200 KiB of local memory a thread.
KERNEL deep(unsigned long long nanoseconds, unsigned char *byte) {
    volatile unsigned char local[200 << 10];
    wait(nanoseconds);
    for (unsigned i = 0; i < sizeof local; i += 512) local[i] = (unsigned char)(i + nanoseconds);
    if (byte) *byte = local[(unsigned)nanoseconds % sizeof local];
}

// Takes the buffer of printf.
KERNEL prints(unsigned long long nanoseconds, unsigned char *byte) {
    wait(nanoseconds);
    if (byte) printf("%p\n", (void *)byte);
}
