/* SPDX-License-Identifier: MIT
 *
 * What all parts of poolstat share: exit codes and the options in force. poolstat reads the segments of figures that
 * libpoolcuda.so publishes; it never writes to them, and of the library it knows the public headers alone.
 */
#ifndef POOLSTAT_H
#define POOLSTAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POOLSTAT_SCHEMA "poolstat/1" /* of the JSON documents */

enum code {
    CODE_OK = 0,
    CODE_NONE = 1,             /* nothing matched; check: the condition does not hold */
    CODE_USAGE = 2,            /* the command line is wrong */
    CODE_DENIED = 3,           /* no permission */
    CODE_DAMAGED = 4,          /* a segment is incompatible or damaged */
    CODE_GONE = 5,             /* the process went away */
    CODE_UNKNOWN = 6,          /* check: a figure that it needs is not known */
    CODE_FAILED = 125,         /* poolstat itself could not do its work */
    CODE_CANNOT_EXECUTE = 126, /* run: the command is there but cannot be executed */
    CODE_NOT_FOUND = 127       /* run: there is no such command */
};

/* Which processes and devices a command is about; zero is all that run. See choose.h. */
struct choice {
    uint32_t *pids; /* as seen from here or in their containers; none: any */
    size_t pid_count;
    bool has_user;
    uint32_t user;
    const char *gpu;     /* ordinal, UUID or PCI address; NULL: any */
    const char *command; /* base name or pattern; NULL: any */
    bool all;            /* also ended processes, and those that cannot be seen from here */
};

struct options {
    struct choice choice;
    uint64_t delay_ns; /* between two answers; 0: not said */
    uint64_t count;    /* of answers; 0: not said */
    bool once, timestamps;
    bool json, csv;
    uint64_t timeout_ns; /* of ctl; 0: not said */
    const char *columns; /* of -o; NULL: the default ones */
    bool no_header, bytes;
    const char *listen, *textfile; /* of serve; NULL: not said */
    bool with_size_classes, with_streams;
    bool coloured;
    bool summary;    /* of run */
    uint32_t pool;   /* number of the one pool that map shows; 0: all */
    bool classes;    /* size classes too */
    const char *svg; /* file that map writes; NULL: none */
    bool ascii;      /* the live view without anything but ASCII */
    size_t width;    /* columns of the terminal, 0 when lines may be of any length */
};

#endif
