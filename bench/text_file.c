/* SPDX-License-Identifier: MIT
 *
 * Reads a whole text file into memory; see text_file.h.
 */
#include "text_file.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lzma.h>

struct bytes {
    unsigned char *data;
    size_t size, room;
};

/* Room for `more` bytes and a terminator. */
static bool bytes_reserve(struct bytes *bytes, size_t more) {
    if (bytes->room - bytes->size > more) return true;
    size_t room = 2 * bytes->room + more + 1;
    unsigned char *data = realloc(bytes->data, room);
    if (data == NULL) return false;
    bytes->data = data;
    bytes->room = room;
    return true;
}

static bool read_all(FILE *file, struct bytes *out) {
    size_t got;
    do {
        if (!bytes_reserve(out, 65536)) {
            errno = ENOMEM;
            return false;
        }
        errno = 0;
        got = fread(out->data + out->size, 1, 65536, file);
        out->size += got;
    } while (got > 0);
    return !ferror(file);
}

/* NULL, or what is wrong with the data. */
static const char *unpack(const struct bytes *packed, struct bytes *out) {
    lzma_stream stream = LZMA_STREAM_INIT;
    const char *wrong = NULL;
    lzma_ret result = lzma_stream_decoder(&stream, UINT64_MAX, LZMA_CONCATENATED);

    stream.next_in = packed->data;
    stream.avail_in = packed->size;
    while (result == LZMA_OK) {
        if (!bytes_reserve(out, 65536)) {
            result = LZMA_MEM_ERROR;
            break;
        }
        stream.next_out = out->data + out->size;
        stream.avail_out = out->room - out->size - 1;
        size_t offered = stream.avail_out;
        result = lzma_code(&stream, LZMA_FINISH);
        out->size += offered - stream.avail_out;
    }
    lzma_end(&stream);
    if (result == LZMA_MEM_ERROR)
        wrong = "out of memory";
    else if (result == LZMA_BUF_ERROR)
        wrong = "the xz data ends too early (is the file cut off?)";
    else if (result != LZMA_STREAM_END)
        wrong = "the xz data is damaged";
    return wrong;
}

bool text_file_read(const char *path, char **text, size_t *size, char *error, size_t error_size) {
    static const unsigned char xz_magic[] = {0xFD, '7', 'z', 'X', 'Z', 0};
    static const unsigned char gzip_magic[] = {0x1F, 0x8B};
    struct bytes raw = {0}, plain = {0};
    const char *wrong = NULL;

    FILE *file = fopen(path, "rb");
    if (file == NULL || !read_all(file, &raw)) wrong = strerror(errno);
    if (file != NULL) fclose(file);

    if (wrong == NULL && raw.size >= sizeof xz_magic && memcmp(raw.data, xz_magic, sizeof xz_magic) == 0) {
        wrong = unpack(&raw, &plain);
        free(raw.data);
        raw = plain;
    } else if (wrong == NULL && raw.size >= sizeof gzip_magic && memcmp(raw.data, gzip_magic, sizeof gzip_magic) == 0) {
        wrong = "compressed with gzip: expected plain text or xz (gzip -d unpacks it)";
    }
    if (wrong != NULL) {
        snprintf(error, error_size, "%s: %s", path, wrong);
        free(raw.data);
        return false;
    }
    assert(raw.data != NULL && "what was read is there");
    raw.data[raw.size] = '\0';
    *text = (char *)raw.data;
    *size = raw.size;
    return true;
}
