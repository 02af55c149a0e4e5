/*
 * Does AVX-VNNI's VPDPBUSD and VPDPWSSD for processors that have AVX2 and not these: what they trap
 * to.
 *
 * VEX.(128|256).66.0F38.W0 50 /r, by Intel's manual: each 32-bit lane of the first register gets the
 * products of four unsigned bytes of the second and four signed bytes of the third operand added, as
 * numbers that wrap. 52 /r, which compilers make of VPMADDWD and VPADDD: those of two signed words.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

enum { BYTES = 0x50, WORDS = 0x52 };

/* In the frame of a signal, by the layout of FXSAVE and XSAVE. */
enum { XMM = 160, STATE = 512, HIGH = 576, HAS_YMM = 4 };

static struct sigaction before;
static unsigned long done;

/* Registers by the numbers that instructions have for them. */
static const int names[16] = {
    REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
    REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15,
};

static void get(const uint8_t *state, int number, uint8_t value[32])
{
    memcpy(value, state + XMM + 16 * number, 16);
    memcpy(value + 16, state + HIGH + 16 * number, 16);
}

static void put(uint8_t *state, int number, const uint8_t value[32])
{
    memcpy(state + XMM + 16 * number, value, 16);
    memcpy(state + HIGH + 16 * number, value + 16, 16);
}

/* The address of an operand in memory; *next: behind it in the instruction, which ends there. */
static const uint8_t *address(
    const greg_t *registers, const uint8_t **next, int mod, int base, int x, int b)
{
    const uint8_t *at = *next;
    int64_t sum = 0;
    int32_t far = 0;
    int from_here = 0;

    if (base == 4) {
        const uint8_t sib = *at++;
        const int index = (sib >> 3 & 7) | x;

        base = sib & 7;
        if (index != 4) {
            sum = (int64_t)((uint64_t)registers[names[index]] << (sib >> 6));
        }
        if (base == 5 && mod == 0) {
            mod = 2;
        } else {
            sum += registers[names[base | b]];
        }
    } else if (base == 5 && mod == 0) {
        from_here = 1;
        mod = 2;
    } else {
        sum = registers[names[base | b]];
    }
    if (mod == 1) {
        sum += (int8_t)*at++;
    } else if (mod == 2) {
        memcpy(&far, at, 4);
        at += 4;
        sum += far;
    }
    *next = at;
    return (const uint8_t *)(intptr_t)(sum + (from_here ? (int64_t)(intptr_t)at : 0));
}

static uint32_t of_bytes(const uint8_t *first, const uint8_t *second)
{
    uint32_t sum = 0;

    for (int i = 0; i < 4; ++i) {
        sum += (uint32_t)(first[i] * (int8_t)second[i]);
    }
    return sum;
}

static uint32_t of_words(const uint8_t *first, const uint8_t *second)
{
    int16_t a[2], b[2];

    memcpy(a, first, 4);
    memcpy(b, second, 4);
    return (uint32_t)(a[0] * b[0]) + (uint32_t)(a[1] * b[1]);
}

static void trapped(int number, siginfo_t *info, void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    uint8_t *state = (uint8_t *)((ucontext_t *)context)->uc_mcontext.fpregs;
    const uint8_t *code = (const uint8_t *)registers[REG_RIP];
    const uint8_t *next = code + 5;
    uint8_t total[32], first[32], second[32] = {0};
    uint64_t parts;

    (void)info;
    if (code[0] != 0xc4 || (code[1] & 0x1f) != 2 || (code[2] & 0x83) != 1
        || (code[3] != BYTES && code[3] != WORDS)) {
        sigaction(number, &before, NULL); /* not ours: trap once more */
        return;
    }
    const int wide = code[2] & 4 ? 32 : 16;
    const int r = code[1] & 0x80 ? 0 : 8, x = code[1] & 0x40 ? 0 : 8, b = code[1] & 0x20 ? 0 : 8;
    const int mod = code[4] >> 6, target = (code[4] >> 3 & 7) | r, last = code[4] & 7;

    memcpy(&parts, state + STATE, 8);
    if (!(parts & HAS_YMM)) {
        memset(state + HIGH, 0, 256);
        parts |= HAS_YMM;
        memcpy(state + STATE, &parts, 8);
    }
    get(state, target, total);
    get(state, ~(code[2] >> 3) & 15, first);
    if (mod == 3) {
        get(state, last | b, second);
    } else {
        memcpy(second, address(registers, &next, mod, last, x, b), (size_t)wide);
    }
    memset(total + wide, 0, (size_t)(32 - wide));
    for (int lane = 0; lane < wide; lane += 4) {
        uint32_t sum;

        memcpy(&sum, total + lane, 4);
        sum += code[3] == BYTES ? of_bytes(first + lane, second + lane)
                                : of_words(first + lane, second + lane);
        memcpy(total + lane, &sum, 4);
    }
    put(state, target, total);
    registers[REG_RIP] = (greg_t)(intptr_t)next;
    ++done;
}

/* From now on; 0 where it can't be. */
int vnni_begin(void)
{
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_sigaction = trapped;
    action.sa_flags = SA_SIGINFO;
    return sigaction(SIGILL, &action, &before) == 0;
}

/* As before; returns how many instructions were done. */
unsigned long vnni_end(void)
{
    sigaction(SIGILL, &before, NULL);
    return done;
}
