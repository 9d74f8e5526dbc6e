/* SPDX-License-Identifier: MIT
 *
 * The control file of a process that was started with POOL_CONTROL=1: how others ask it to give memory back, to change
 * its limit, or to forget its peaks. `poolstat ctl` is one who asks; libpoolcuda.so answers.
 *
 * Where.   Beside the segment of figures (stats.h): /dev/shm/poolcuda-control-UID-PID-START, mode 0600. It appears with
 *          the segment and is removed with it.
 * Shape.   A header, one request and one answer, at the offsets below, in a file of POOLCUDA_CONTROL_BYTES. Numbers are
 *          host-endian. Read and write it with pread and pwrite, a whole record at a time: the file may be cut short by
 *          its owner at any moment, and who touched a mapping of it then would be killed. A record's `check` tells a
 *          whole copy from one that was read while it was written.
 * Order.   Who asks holds flock(LOCK_EX) on the file from before its request until its answer, or until it has
 *          withdrawn the request: by COMMAND_none under the same sequence. A request has another sequence than those
 *          that stand in the file: the one after the request's, but neither 0 nor the answer's. It is answered twice,
 *          with CODE_taken when it is taken up, and with another code when it has been carried out. `turn` changes with
 *          every answer.
 * Waiting. FUTEX_WAIT and FUTEX_WAKE (not private) at a mapping of the file, that is never touched, at the offset of a
 *          request's `sequence` (the process waits there) or of an answer's `turn` (who asks waits there). Both are
 *          written first and woken then.
 */
#ifndef POOLCUDA_CONTROL_H
#define POOLCUDA_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define POOLCUDA_CONTROL_PREFIX "poolcuda-control-" /* the file's name below /dev/shm begins so */
#define POOLCUDA_CONTROL_MAGIC "POOLCTRL"           /* eight bytes, no terminator */
#define POOLCUDA_CONTROL_VERSION 1u
#define POOLCUDA_CONTROL_BYTES 4096u
#define POOLCUDA_CONTROL_REQUEST_AT 64u
#define POOLCUDA_CONTROL_ANSWER_AT 128u

/* X(name, help). The numbers are in this order, from 0. */
#define POOLCUDA_CONTROL_COMMANDS(X)                                                                         \
    X(none, "nothing: withdraws a request that has not been taken up")                                       \
    X(trim, "give cached memory back until at most `value` bytes stay cached on each device")                \
    X(limit, "from now on at most `value` bytes are reserved on each device; UINT64_MAX: as many as it has") \
    X(reset_peak, "the highest values of all figures are forgotten: from now on they are the present ones")

#define POOLCUDA_CONTROL_CODES(X)                                           \
    X(none, "nothing was ever asked")                                       \
    X(taken, "the request is being carried out")                            \
    X(done, "it has been carried out")                                      \
    X(unknown_command, "this version of the library knows no such request") \
    X(bad_value, "the request's value is out of range")                     \
    X(not_pooled, "the process has no pool (yet): it made no CUDA allocation, or its calls pass through")

#define POOLCUDA_CONTROL_ENUM_COMMAND(name, help) POOLCUDA_CONTROL_COMMAND_##name,
enum poolcuda_control_command {
    POOLCUDA_CONTROL_COMMANDS(POOLCUDA_CONTROL_ENUM_COMMAND) POOLCUDA_CONTROL_COMMAND_COUNT
};
#undef POOLCUDA_CONTROL_ENUM_COMMAND

#define POOLCUDA_CONTROL_ENUM_CODE(name, help) POOLCUDA_CONTROL_CODE_##name,
enum poolcuda_control_code { POOLCUDA_CONTROL_CODES(POOLCUDA_CONTROL_ENUM_CODE) POOLCUDA_CONTROL_CODE_COUNT };
#undef POOLCUDA_CONTROL_ENUM_CODE

/* Of a limit; as POOL_LIMIT_MB. */
#define POOLCUDA_CONTROL_LIMIT_LEAST (UINT64_C(2) << 20)
#define POOLCUDA_CONTROL_LIMIT_MOST (UINT64_C(1) << 44)

/* As the header of a segment of figures begins. */
struct poolcuda_control_header {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes;
    uint64_t total_bytes;
    uint32_t pid; /* in the owner's pid namespace */
    uint32_t uid;
    uint64_t start_ticks;
    uint64_t pid_namespace;
    uint64_t reserved[2];
};

struct poolcuda_control_request {
    uint32_t sequence; /* 0: nothing was ever asked */
    uint32_t command;  /* enum poolcuda_control_command */
    uint64_t value;
    uint64_t reserved[5];
    uint64_t check; /* poolcuda_control_check of what is before */
};

struct poolcuda_control_answer {
    uint32_t turn;
    uint32_t sequence; /* of the request */
    uint32_t code;     /* enum poolcuda_control_code */
    uint32_t reserved0;
    uint64_t given_back_bytes;   /* to the driver */
    uint64_t reserved_bytes;     /* what is reserved now, on all devices; */
    uint64_t live_bytes;         /* of that the program's, */
    uint64_t cached_bytes;       /* and what is free */
    uint64_t limit_bytes;        /* in force now; UINT64_MAX: none */
    uint64_t limit_bytes_before; /* the request */
    uint64_t over_limit_bytes;   /* so much more is reserved, on the device where it is most: it is in use */
    uint64_t reserved[6];
    uint64_t check;
};

/* FNV-1a: against halves of two records, not against malice. */
static inline uint64_t poolcuda_control_check(const void *record, size_t bytes) {
    const unsigned char *at = (const unsigned char *)record;
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < bytes; i++) sum = (sum ^ at[i]) * UINT64_C(0x100000001b3);
    return sum;
}
#define POOLCUDA_CONTROL_CHECK_OF(record) poolcuda_control_check((record), offsetof(__typeof__(*(record)), check))

#ifdef __cplusplus
}
#else
_Static_assert(sizeof(struct poolcuda_control_header) == POOLCUDA_CONTROL_REQUEST_AT, "the header comes before all");
_Static_assert(sizeof(struct poolcuda_control_request) == 64, "a request fills its place");
_Static_assert(sizeof(struct poolcuda_control_answer) == 128, "an answer fills its place");
#endif

#endif
