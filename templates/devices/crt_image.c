/* SPDX-License-Identifier: Apache-2.0 */
#include "crt_image.h"

/* Compilers copy small functions into their callers also where code shall be small. */
#if defined(__GNUC__)
#define CRT_ONCE __attribute__((noinline))
#else
#define CRT_ONCE
#endif

/* Clang's -Os still unrolls: less than 2 KiB of flash is what this file is for. */
#if defined(__clang__)
#pragma clang attribute push(__attribute__((minsize)), apply_to = function)
#endif

/* A place in the bytes that are read, and one in those that are written. */
struct source {
    const uint8_t *at;
    const uint8_t *end;
};

struct sink {
    uint8_t *begin;
    uint8_t *at;
    uint8_t *end;
};

static uint32_t read_u16(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8;
}

CRT_ONCE static uint32_t read_u32(const uint8_t *bytes)
{
    return read_u16(bytes) | read_u16(bytes + 2) << 16;
}

CRT_ONCE uint32_t crt_image_crc32c(const void *bytes, size_t size)
{
    static const uint32_t table[16] = {
        0x00000000u, 0x105EC76Fu, 0x20BD8EDEu, 0x30E349B1u, 0x417B1DBCu, 0x5125DAD3u,
        0x61C69362u, 0x7198540Du, 0x82F63B78u, 0x92A8FC17u, 0xA24BB5A6u, 0xB21572C9u,
        0xC38D26C4u, 0xD3D3E1ABu, 0xE330A81Au, 0xF36E6F75u,
    };
    const uint8_t *at = bytes;
    uint32_t crc = 0xFFFFFFFFu;

    for (; size != 0; size--) {
        crc ^= *at++;
        crc = crc >> 4 ^ table[crc & 15u];
        crc = crc >> 4 ^ table[crc & 15u];
    }
    return ~crc;
}

#define MAGIC 0x49545243u /* "CRTI" */

int32_t crt_image_info(const void *image, size_t limit, struct crt_image_info *info)
{
    const uint8_t *header = image;
    uint32_t method;

    if (image == NULL || info == NULL) {
        return CRT_IMAGE_NULL;
    }
    if (limit < CRT_IMAGE_HEADER_SIZE || read_u32(header) != MAGIC
        || read_u32(header + 28) != crt_image_crc32c(header, 28)) {
        return CRT_IMAGE_NO_IMAGE;
    }
    method = read_u16(header + 6);
    if (read_u16(header + 4) != 1 || method > CRT_IMAGE_ZLIB) {
        return CRT_IMAGE_METHOD;
    }
    info->method = (enum crt_image_method)method;
    info->original_size = read_u32(header + 8);
    info->stored_size = read_u32(header + 12);
    info->align = read_u32(header + 24);
    return info->stored_size > limit - CRT_IMAGE_HEADER_SIZE ? CRT_IMAGE_DAMAGED : CRT_IMAGE_OK;
}

/* Copies length bytes that were written distance bytes ago; they may overlap what they become. */
CRT_ONCE static int repeat(struct sink *out, size_t distance, size_t length)
{
    if (distance == 0 || distance > (size_t)(out->at - out->begin)
        || length > (size_t)(out->end - out->at)) {
        return 0;
    }
    for (; length != 0; length--) {
        *out->at = *(out->at - distance);
        out->at++;
    }
    return 1;
}

CRT_ONCE static int take(struct source *in, struct sink *out, size_t length)
{
    if (length > (size_t)(in->end - in->at) || length > (size_t)(out->end - out->at)) {
        return 0;
    }
    for (; length != 0; length--) {
        *out->at++ = *in->at++;
    }
    return 1;
}

/* ---- LZ4 block format ---- */

/* A length of 15 goes on in further bytes, until one is not 255. */
CRT_ONCE static int lz4_length(struct source *in, size_t *length)
{
    uint8_t more = 255;

    if (*length != 15) {
        return 1;
    }
    while (more == 255) {
        if (in->at == in->end || *length > SIZE_MAX - 255u) {
            return 0;
        }
        more = *in->at++;
        *length += more;
    }
    return 1;
}

static int lz4(struct source *in, struct sink *out)
{
    while (in->at != in->end) {
        uint8_t token = *in->at++;
        size_t length = token >> 4;
        size_t distance;

        if (!lz4_length(in, &length) || !take(in, out, length)) {
            return 0;
        }
        if (in->at == in->end) {
            return 1; /* the last sequence has literals alone */
        }
        if (in->end - in->at < 2) {
            return 0;
        }
        distance = read_u16(in->at);
        in->at += 2;
        length = token & 15u;
        if (!lz4_length(in, &length) || length > SIZE_MAX - 4u
            || !repeat(out, distance, length + 4u)) {
            return 0;
        }
    }
    return 1;
}

/* ---- zlib (RFC 1950) around deflate (RFC 1951) ---- */

#define LITERALS 288u
#define DISTANCES 30u
#define LONGEST 15u

struct bits {
    struct source in;
    uint32_t held;
    uint32_t count;
    int failed;
};

/* Codes by length, and the symbols in the order of their codes. */
struct code {
    uint16_t count[LONGEST + 1u];
    uint16_t symbol[LITERALS];
};

CRT_ONCE static uint32_t get(struct bits *bits, uint32_t count)
{
    uint32_t value;

    while (bits->count < count) {
        if (bits->in.at == bits->in.end) {
            bits->failed = 1;
            return 0;
        }
        bits->held |= (uint32_t)*bits->in.at++ << bits->count;
        bits->count += 8;
    }
    value = bits->held & ((1u << count) - 1u);
    bits->held >>= count;
    bits->count -= count;
    return value;
}

/* Makes a code from the lengths of its symbols; 0 if they need more codes than there are. */
CRT_ONCE static int construct(struct code *code, const uint8_t *lengths, uint32_t symbols)
{
    uint16_t offset[LONGEST + 1u];
    int32_t left = 1;

    for (uint32_t i = 0; i <= LONGEST; i++) {
        code->count[i] = 0;
    }
    for (uint32_t i = 0; i < symbols; i++) {
        code->count[lengths[i]]++;
    }
    offset[1] = 0;
    for (uint32_t i = 1; i <= LONGEST; i++) {
        left = 2 * left - code->count[i];
        if (left < 0) {
            return 0;
        }
        if (i < LONGEST) {
            offset[i + 1u] = (uint16_t)(offset[i] + code->count[i]);
        }
    }
    for (uint32_t i = 0; i < symbols; i++) {
        if (lengths[i] != 0) {
            code->symbol[offset[lengths[i]]++] = (uint16_t)i;
        }
    }
    return 1;
}

/* The next symbol; one that no code has where the bits run out or mean nothing. */
CRT_ONCE static uint32_t decode(struct bits *bits, const struct code *code)
{
    uint32_t value = 0;
    uint32_t first = 0;
    uint32_t index = 0;
    uint32_t held = bits->held;
    uint32_t left = bits->count;

    for (uint32_t length = 1; length <= LONGEST; length++) {
        uint32_t count = code->count[length];

        if (left == 0) {
            if (bits->in.at == bits->in.end) {
                break;
            }
            held = *bits->in.at++;
            left = 8;
        }
        value |= held & 1u;
        held >>= 1;
        left--;
        if (value < first + count) {
            bits->held = held;
            bits->count = left;
            return code->symbol[index + value - first];
        }
        index += count;
        first = (first + count) << 1;
        value <<= 1;
    }
    bits->failed = 1;
    return LITERALS;
}

/* Lengths and distances grow by powers of two: base and extra bits follow from the symbol. */
static uint32_t length_of(struct bits *bits, uint32_t symbol)
{
    uint32_t extra;

    if (symbol < 8u) {
        return symbol + 3u;
    }
    if (symbol == 28u) {
        return 258u;
    }
    extra = symbol / 4u - 1u;
    return ((4u + symbol % 4u) << extra) + 3u + get(bits, extra);
}

static uint32_t distance_of(struct bits *bits, uint32_t symbol)
{
    uint32_t extra;

    if (symbol < 4u) {
        return symbol + 1u;
    }
    extra = symbol / 2u - 1u;
    return ((2u + symbol % 2u) << extra) + 1u + get(bits, extra);
}

static int compressed(
    struct bits *bits, struct sink *out, const struct code *literals, const struct code *distances)
{
    while (!bits->failed) {
        uint32_t symbol = decode(bits, literals);

        if (symbol < 256u) {
            if (bits->failed || out->at == out->end) {
                return 0;
            }
            *out->at++ = (uint8_t)symbol;
        } else if (symbol == 256u) {
            return 1;
        } else {
            uint32_t length;
            uint32_t far;

            if (symbol > 285u) {
                return 0;
            }
            length = length_of(bits, symbol - 257u);
            far = decode(bits, distances);
            if (bits->failed || far >= DISTANCES) {
                return 0;
            }
            far = distance_of(bits, far);
            if (bits->failed || !repeat(out, far, length)) {
                return 0;
            }
        }
    }
    return 0;
}

static int stored(struct bits *bits, struct sink *out)
{
    uint32_t length;

    bits->held = 0;
    bits->count = 0;
    if (bits->in.end - bits->in.at < 4) {
        return 0;
    }
    length = read_u16(bits->in.at);
    if ((length ^ 0xFFFFu) != read_u16(bits->in.at + 2)) {
        return 0;
    }
    bits->in.at += 4;
    return take(&bits->in, out, length);
}

/* Reads the lengths of both codes of a block. */
static int dynamic(
    struct bits *bits, struct code *literals, struct code *distances, uint8_t *lengths)
{
    static const uint8_t order[19] = {
        16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15,
    };
    uint32_t literal_count = get(bits, 5) + 257u;
    uint32_t distance_count = get(bits, 5) + 1u;
    uint32_t length_count = get(bits, 4) + 4u;
    uint32_t all = literal_count + distance_count;
    uint32_t index = 0;

    if (literal_count > 286u || distance_count > DISTANCES) {
        return 0;
    }
    for (uint32_t i = 0; i < 19u; i++) {
        lengths[order[i]] = (uint8_t)(i < length_count ? get(bits, 3) : 0u);
    }
    if (!construct(literals, lengths, 19)) {
        return 0;
    }
    while (index < all) {
        uint32_t symbol = decode(bits, literals);
        uint8_t value = 0;
        uint32_t times = 1;

        if (bits->failed) {
            return 0;
        }
        if (symbol < 16u) {
            value = (uint8_t)symbol;
        } else if (symbol == 16u) {
            if (index == 0) {
                return 0;
            }
            value = lengths[index - 1u];
            times = 3u + get(bits, 2);
        } else {
            times = symbol == 17u ? 3u + get(bits, 3) : 11u + get(bits, 7);
        }
        if (times > all - index) {
            return 0;
        }
        for (; times != 0; times--) {
            lengths[index++] = value;
        }
    }
    return lengths[256] != 0 && construct(literals, lengths, literal_count)
        && construct(distances, lengths + literal_count, distance_count);
}

static int fixed(struct code *literals, struct code *distances, uint8_t *lengths)
{
    for (uint32_t i = 0; i < LITERALS; i++) {
        lengths[i] = (uint8_t)(i < 144u ? 8u : i < 256u ? 9u : i < 280u ? 7u : 8u);
    }
    (void)construct(literals, lengths, LITERALS);
    for (uint32_t i = 0; i < DISTANCES; i++) {
        lengths[i] = 5;
    }
    return construct(distances, lengths, DISTANCES);
}

static int zlib(const struct source *in, struct sink *out)
{
    struct code literals;
    struct code distances;
    uint8_t lengths[LITERALS + 32u];
    struct bits bits = { *in, 0, 0, 0 };
    uint32_t last = 0;

    /* Deflate, a window of at most 32 KiB, no preset dictionary. */
    if (in->end - in->at < 6 || (in->at[0] & 15u) != 8u || (in->at[1] & 32u) != 0
        || ((uint32_t)in->at[0] << 8 | in->at[1]) % 31u != 0) {
        return 0;
    }
    bits.in.at += 2;
    bits.in.end -= 4; /* Adler-32: the CRC of the program says more */
    while (last == 0) {
        int good;

        last = get(&bits, 1);
        switch (get(&bits, 2)) {
        case 0:
            good = stored(&bits, out);
            break;
        case 1:
            good = fixed(&literals, &distances, lengths)
                && compressed(&bits, out, &literals, &distances);
            break;
        case 2:
            good = dynamic(&bits, &literals, &distances, lengths)
                && compressed(&bits, out, &literals, &distances);
            break;
        default:
            good = 0;
            break;
        }
        if (!good || bits.failed) {
            return 0;
        }
    }
    return bits.in.at == bits.in.end;
}

int32_t crt_image_open(const void *image, size_t limit, void *buffer, size_t buffer_size,
                       const void **program)
{
    const uint8_t *bytes = image;
    struct crt_image_info info;
    struct source in;
    struct sink out;
    int32_t status;
    int good;

    if (program == NULL) {
        return CRT_IMAGE_NULL;
    }
    *program = NULL;
    status = crt_image_info(image, limit, &info);
    if (status != CRT_IMAGE_OK) {
        return status;
    }
    in.at = bytes + CRT_IMAGE_HEADER_SIZE;
    in.end = in.at + info.stored_size;
#ifdef CRT_IMAGE_TRUSTED
    if (info.method != CRT_IMAGE_STORED)
#endif
    if (crt_image_crc32c(in.at, info.stored_size) != read_u32(bytes + 20)) {
        return CRT_IMAGE_DAMAGED;
    }
    if (info.method == CRT_IMAGE_STORED) {
        /* The bytes that were compared above are the program: one sum says as much as the other. */
        if (info.stored_size != info.original_size
            || read_u32(bytes + 16) != read_u32(bytes + 20)) {
            return CRT_IMAGE_DAMAGED;
        }
        if (info.align == 0 || ((uintptr_t)in.at & (info.align - 1u)) != 0) {
            return CRT_IMAGE_BUFFER;
        }
        *program = in.at;
        return CRT_IMAGE_OK;
    }
    if (buffer == NULL) {
        return CRT_IMAGE_NULL;
    }
    if (buffer_size < info.original_size || info.align == 0
        || ((uintptr_t)buffer & (info.align - 1u)) != 0) {
        return CRT_IMAGE_BUFFER;
    }
    out.begin = buffer;
    out.at = out.begin;
    out.end = out.begin + info.original_size;
    good = info.method == CRT_IMAGE_LZ4 ? lz4(&in, &out) : zlib(&in, &out);
    if (!good || out.at != out.end
        || crt_image_crc32c(buffer, info.original_size) != read_u32(bytes + 16)) {
        return CRT_IMAGE_DAMAGED;
    }
    *program = buffer;
    return CRT_IMAGE_OK;
}

#if defined(__clang__)
#pragma clang attribute pop
#endif
