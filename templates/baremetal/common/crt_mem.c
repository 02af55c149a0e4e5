/* SPDX-License-Identifier: Apache-2.0 */
/* The memory functions that compilers call on their own, for firmware without a C library. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Words that may alias anything, as bytes do. */
typedef uint32_t __attribute__((may_alias)) word;

static int both_aligned(const void *a, const void *b)
{
    return (((uintptr_t)a | (uintptr_t)b) & (sizeof(word) - 1u)) == 0u;
}

void *memcpy(void *restrict to, const void *restrict from, size_t count)
{
    uint8_t *out = to;
    const uint8_t *in = from;

    if (both_aligned(out, in)) {
        for (; count >= 4u * sizeof(word); count -= 4u * sizeof(word)) {
            word a = ((const word *)in)[0], b = ((const word *)in)[1];
            word c = ((const word *)in)[2], d = ((const word *)in)[3];
            ((word *)out)[0] = a;
            ((word *)out)[1] = b;
            ((word *)out)[2] = c;
            ((word *)out)[3] = d;
            in += 4u * sizeof(word);
            out += 4u * sizeof(word);
        }
        for (; count >= sizeof(word); count -= sizeof(word)) {
            *(word *)out = *(const word *)in;
            in += sizeof(word);
            out += sizeof(word);
        }
    }
    while (count-- > 0u) {
        *out++ = *in++;
    }
    return to;
}

void *memmove(void *to, const void *from, size_t count)
{
    uint8_t *out = to;
    const uint8_t *in = from;

    if ((uintptr_t)out - (uintptr_t)in >= count) {
        return memcpy(to, from, count);
    }
    while (count-- > 0u) {
        out[count] = in[count];
    }
    return to;
}

void *memset(void *to, int value, size_t count)
{
    uint8_t *out = to;
    word pattern = (word)(uint8_t)value * 0x01010101u;

    while (count > 0u && ((uintptr_t)out & (sizeof(word) - 1u)) != 0u) {
        *out++ = (uint8_t)value;
        count--;
    }
    for (; count >= 4u * sizeof(word); count -= 4u * sizeof(word)) {
        ((word *)out)[0] = pattern;
        ((word *)out)[1] = pattern;
        ((word *)out)[2] = pattern;
        ((word *)out)[3] = pattern;
        out += 4u * sizeof(word);
    }
    while (count-- > 0u) {
        *out++ = (uint8_t)value;
    }
    return to;
}

int memcmp(const void *a, const void *b, size_t count)
{
    const uint8_t *left = a;
    const uint8_t *right = b;

    for (size_t i = 0; i < count; i++) {
        if (left[i] != right[i]) {
            return left[i] < right[i] ? -1 : 1;
        }
    }
    return 0;
}
