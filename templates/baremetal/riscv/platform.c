/* SPDX-License-Identifier: Apache-2.0 */
/* 32-bit RISC-V: console and exit by semihosting, traps, and the counter of retired instructions. */
#include "crt_platform.h"

#define SYS_WRITE0 0x04u
#define SYS_EXIT_EXTENDED 0x20u
#define APPLICATION_EXIT 0x20026u

uint32_t crt_riscv_semihost(uint32_t operation, uintptr_t argument);
void crt_riscv_fault(uint32_t cause, uintptr_t pc);

void crt_write(const char *text)
{
    (void)crt_riscv_semihost(SYS_WRITE0, (uintptr_t)text);
}

void crt_exit(int status)
{
    const uint32_t block[2] = { APPLICATION_EXIT, (uint32_t)status };

    (void)crt_riscv_semihost(SYS_EXIT_EXTENDED, (uintptr_t)block);
    for (;;) {
    }
}

void crt_riscv_fault(uint32_t cause, uintptr_t pc)
{
    crt_fault("trap", cause, pc);
}

uint64_t crt_counter(void)
{
    uint32_t high, low, again;

    do {
        __asm__ volatile(".option push; .option arch, +zicsr\n\t"
                         "csrr %0, minstreth; csrr %1, minstret; csrr %2, minstreth\n\t"
                         ".option pop"
                         : "=r"(high), "=r"(low), "=r"(again));
    } while (high != again);
    return ((uint64_t)high << 32) | low;
}
