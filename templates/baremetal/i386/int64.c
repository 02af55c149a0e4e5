/* SPDX-License-Identifier: Apache-2.0 */
/* The 64-bit divisions that compilers call on 32-bit x86, and the shifts that LLVM calls where code
   is to be small, where there is no libgcc. */
#include <stdint.h>

uint64_t __udivdi3(uint64_t a, uint64_t b);
uint64_t __umoddi3(uint64_t a, uint64_t b);
int64_t __divdi3(int64_t a, int64_t b);
int64_t __moddi3(int64_t a, int64_t b);
uint64_t __ashldi3(uint64_t a, int count);
uint64_t __lshrdi3(uint64_t a, int count);
int64_t __ashrdi3(int64_t a, int count);

/* high:low / b, for high < b, so that the quotient has 32 bits. */
static uint32_t divide_64_by_32(uint32_t high, uint32_t low, uint32_t b, uint32_t *rest)
{
    uint32_t quotient;

    __asm__("divl %4" : "=a"(quotient), "=d"(*rest) : "0"(low), "1"(high), "rm"(b) : "cc");
    return quotient;
}

static uint64_t divide(uint64_t a, uint64_t b, uint64_t *rest)
{
    uint32_t high = (uint32_t)(b >> 32);

    if (high == 0u) {
        uint32_t divisor = (uint32_t)b;
        uint32_t a_high = (uint32_t)(a >> 32);
        uint32_t remainder;
        uint32_t top = a_high / divisor;
        uint32_t low = divide_64_by_32(a_high % divisor, (uint32_t)a, divisor, &remainder);

        *rest = remainder;
        return ((uint64_t)top << 32) | low;
    }
    if (a < b) {
        *rest = a;
        return 0;
    }
    /* The divisor's top 32 bits give a quotient that is right or one too large (Knuth, D3). */
    int shift = __builtin_clz(high);
    uint32_t remainder;
    uint64_t scaled = a >> 1;
    uint32_t top = (uint32_t)((b << shift) >> 32);
    uint32_t estimate = divide_64_by_32((uint32_t)(scaled >> 32), (uint32_t)scaled, top, &remainder);
    uint64_t quotient = (uint64_t)estimate >> (31 - shift);

    if (quotient != 0u) {
        quotient--;
    }
    uint64_t left = a - quotient * b;

    if (left >= b) {
        quotient++;
        left -= b;
    }
    *rest = left;
    return quotient;
}

uint64_t __udivdi3(uint64_t a, uint64_t b)
{
    uint64_t rest;

    return divide(a, b, &rest);
}

uint64_t __umoddi3(uint64_t a, uint64_t b)
{
    uint64_t rest;

    (void)divide(a, b, &rest);
    return rest;
}

static uint64_t magnitude(int64_t value)
{
    return value < 0 ? 0u - (uint64_t)value : (uint64_t)value;
}

int64_t __divdi3(int64_t a, int64_t b)
{
    uint64_t rest;
    uint64_t quotient = divide(magnitude(a), magnitude(b), &rest);

    return (int64_t)((a < 0) != (b < 0) ? 0u - quotient : quotient);
}

int64_t __moddi3(int64_t a, int64_t b)
{
    uint64_t rest;

    (void)divide(magnitude(a), magnitude(b), &rest);
    return (int64_t)(a < 0 ? 0u - rest : rest);
}

/* The shifts are made of those of 32 bits, so that no compiler makes calls of them again. The count
   is 0 to 63. */
static uint64_t joined(uint32_t high, uint32_t low)
{
    return ((uint64_t)high << 32) | low;
}

uint64_t __ashldi3(uint64_t a, int count)
{
    uint32_t high = (uint32_t)(a >> 32);
    uint32_t low = (uint32_t)a;

    if (count >= 32) {
        return joined(low << (count - 32), 0);
    }
    return count == 0 ? a : joined((high << count) | (low >> (32 - count)), low << count);
}

uint64_t __lshrdi3(uint64_t a, int count)
{
    uint32_t high = (uint32_t)(a >> 32);
    uint32_t low = (uint32_t)a;

    if (count >= 32) {
        return joined(0, high >> (count - 32));
    }
    return count == 0 ? a : joined(high >> count, (low >> count) | (high << (32 - count)));
}

int64_t __ashrdi3(int64_t a, int count)
{
    uint64_t ones = a < 0 ? ~(uint64_t)0 : 0u;

    /* What is shifted in from above are copies of the sign. */
    return (int64_t)(__lshrdi3((uint64_t)a ^ ones, count) ^ ones);
}
