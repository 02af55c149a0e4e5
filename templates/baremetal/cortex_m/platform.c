/* SPDX-License-Identifier: Apache-2.0 */
/* Cortex-M: console and exit by semihosting, faults, and SysTick as a rough counter. */
#include "crt_platform.h"

#define SYS_WRITE0 0x04u
#define SYS_EXIT_EXTENDED 0x20u
#define APPLICATION_EXIT 0x20026u

#define CFSR (*(volatile uint32_t *)0xE000ED28u)
#define SYST_CSR (*(volatile uint32_t *)0xE000E010u)
#define SYST_RVR (*(volatile uint32_t *)0xE000E014u)
#define SYST_CVR (*(volatile uint32_t *)0xE000E018u)
#define SYSTICK_RELOAD 0xFFFFFFu
#define SYSTICK_ENABLED 1u
#define SYSTICK_ON 7u /* enabled, interrupt, processor's clock */

extern uint8_t crt_data_load[], crt_data_start[], crt_data_end[];
extern uint8_t crt_bss_start[], crt_bss_end[];
extern uint8_t crt_model_bss_start[], crt_model_bss_end[];

void crt_cortex_m_memories(void);
void crt_cortex_m_fault(const uint32_t *frame);
void crt_systick(void);

static uint32_t semihost(uint32_t operation, uintptr_t argument)
{
    register uint32_t r0 __asm__("r0") = operation;
    register uintptr_t r1 __asm__("r1") = argument;

    __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

void crt_write(const char *text)
{
    (void)semihost(SYS_WRITE0, (uintptr_t)text);
}

void crt_exit(int status)
{
    const uint32_t block[2] = { APPLICATION_EXIT, (uint32_t)status };

    (void)semihost(SYS_EXIT_EXTENDED, (uintptr_t)block);
    for (;;) {
    }
}

static void clear(uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        *at++ = 0;
    }
}

void crt_cortex_m_memories(void)
{
    const uint8_t *from = crt_data_load;

    for (uint8_t *at = crt_data_start; at < crt_data_end; at++) {
        *at = *from++;
    }
    clear(crt_bss_start, crt_bss_end);
    clear(crt_model_bss_start, crt_model_bss_end);
}

void crt_cortex_m_fault(const uint32_t *frame)
{
#if __ARM_ARCH >= 7 && !defined(__ARM_ARCH_8M_BASE__)
    uint32_t status = CFSR;
#else
    uint32_t status = 0; /* ARMv6-M does not say */
#endif

    crt_fault("fault", status, frame[6]);
}

#ifdef CRT_COUNT_SYSTICK
static volatile uint32_t wraps;

void crt_systick(void)
{
    wraps++;
}

uint64_t crt_counter(void)
{
    uint32_t before, ticks;

    if ((SYST_CSR & SYSTICK_ENABLED) == 0u) {
        SYST_RVR = SYSTICK_RELOAD;
        SYST_CVR = 0;
        SYST_CSR = SYSTICK_ON;
    }
    do {
        before = wraps;
        ticks = SYSTICK_RELOAD - SYST_CVR;
    } while (before != wraps);
    return ((uint64_t)before << 24) + ticks;
}
#else
void crt_systick(void)
{
}

/* Empty: QEMU's plugin takes down its count whenever this function is called. */
__attribute__((noinline)) uint64_t crt_counter(void)
{
    __asm__ volatile("");
    return 0;
}
#endif
