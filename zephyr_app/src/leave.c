/* SPDX-License-Identifier: Apache-2.0 */
#include "leave.h"

#include <zephyr/kernel.h>

#if defined(CONFIG_ARCH_POSIX)

void posix_exit(int exit_code);

void leave(int status)
{
	posix_exit(status);
}

#elif defined(CONFIG_LEAVE_QEMU) && defined(CONFIG_X86)

#include <zephyr/arch/cpu.h>

void leave(int status)
{
	if (status == 0) {
		/* A reset, upon which QEMU ends, as Zephyr starts it; its exit status is 0. */
		sys_out8(0x06, 0xcf9);
	}
	/* The device isa-debug-exit: QEMU's exit status is never 0. */
	sys_out32((uint32_t)status, 0xf4);
}

#elif defined(CONFIG_LEAVE_QEMU) && defined(CONFIG_SEMIHOST)

#include <zephyr/arch/common/semihost.h>

void leave(int status)
{
	/* SYS_EXIT with ADP_Stopped_ApplicationExit, or with another reason for a failure. */
	(void)semihost_exec((enum semihost_instr)0x18, (void *)(status == 0 ? 0x20026 : 0x20024));
}

#else

void leave(int status)
{
	ARG_UNUSED(status);
}

#endif
