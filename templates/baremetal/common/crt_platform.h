/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an architecture's own files (start-up, console, counter) give to the rest of the firmware.
 * Besides, its start.S has crt_reset, where programs begin, and crt_nothing, which returns at once:
 * a call of it is what the measurement of an inference costs.
 */
#ifndef CRT_PLATFORM_H
#define CRT_PLATFORM_H

#include <stdint.h>

/* Prints text, which ends with NUL. */
void crt_write(const char *text);

/* Ends the program; 0 means that all went well. */
void crt_exit(int status) __attribute__((noreturn));

/* Reports a processor fault at address pc on the console and ends the program. */
void crt_fault(const char *what, uint32_t code, uintptr_t pc) __attribute__((noreturn));

/* Ticks of the counter of instructions. QEMU's counting plugin also watches for calls of it. */
uint64_t crt_counter(void);

/* The program proper; returns what crt_exit takes. */
int crt_main(void);

#ifndef CRT_HOSTED
/* Ends of the stack, from the linker script. */
extern uint32_t crt_stack_bottom[];
extern uint32_t crt_stack_top[];

/* Its caller's stack pointer. */
uintptr_t crt_stack_pointer(void);
#endif

#endif
