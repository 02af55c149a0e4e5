/* What a board's own files (start-up, console, counter) give to the rest of the firmware. */
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

static inline uintptr_t crt_stack_pointer(void)
{
    uintptr_t value;

#if defined(__i386__)
    __asm__ volatile("movl %%esp, %0" : "=r"(value));
#elif defined(__arm__)
    __asm__ volatile("mov %0, sp" : "=r"(value));
#else
    __asm__ volatile("mv %0, sp" : "=r"(value));
#endif
    return value;
}
#endif

#endif
