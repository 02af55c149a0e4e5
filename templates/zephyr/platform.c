/* SPDX-License-Identifier: Apache-2.0 */
/* What the answering program needs of Zephyr: a console, a clock, an end. */
#include <zephyr/kernel.h>
#include <zephyr/fatal.h>
#include <zephyr/sys/printk.h>

#include "crt_platform.h"
#include "leave.h"

/* The name of an exception's frame has changed in 3.7, with this header. */
#if defined(__has_include) && __has_include(<zephyr/arch/exception.h>)
typedef struct arch_esf exception_frame;
#else
typedef z_arch_esf_t exception_frame;
#endif

void crt_write(const char *text)
{
	printk("%s", text);
}

void crt_exit(int status)
{
	leave(status);
	for (;;) {
		k_sleep(K_FOREVER);
	}
}

uint64_t crt_counter(void)
{
	/* A difference of two is right if less than 2^32 cycles lie between. */
	return k_cycle_get_32();
}

int32_t crt_nothing(void);

int32_t crt_nothing(void)
{
	return 0;
}

void k_sys_fatal_error_handler(unsigned int reason, const exception_frame *frame)
{
	ARG_UNUSED(frame);
	printk("\n");
	crt_fault("zephyr", reason, 0);
}

int main(void)
{
	printk("CRT:CLOCK %x\n", (unsigned int)sys_clock_hw_cycles_per_sec());
	crt_exit(crt_main());
	return 0;
}
