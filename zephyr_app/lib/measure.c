/* SPDX-License-Identifier: Apache-2.0 */
#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>

#include <crtexport/measure.h>

void crtexport_measure_start(struct crtexport_measurement *measurement)
{
	*measurement = (struct crtexport_measurement){0};
#ifdef CONFIG_CRTEXPORT_TIMING
	measurement->cycles = k_cycle_get_32();
#endif
}

void crtexport_measure_stop(struct crtexport_measurement *measurement)
{
#ifdef CONFIG_CRTEXPORT_TIMING
	measurement->cycles = k_cycle_get_32() - measurement->cycles;
#endif
#ifdef CONFIG_CRTEXPORT_STACK_CHECK
	measurement->stack_size = k_current_get()->stack_info.size;
	(void)k_thread_stack_space_get(k_current_get(), &measurement->stack_unused);
#endif
}

void crtexport_measure_show(const char *model, const struct crtexport_measurement *measurement)
{
#ifdef CONFIG_CRTEXPORT_PRINT
#ifdef CONFIG_CRTEXPORT_TIMING
	printk("%s: %u cycles (%u us)\n", model, (unsigned int)measurement->cycles,
	       (unsigned int)k_cyc_to_us_near32(measurement->cycles));
#endif
#ifdef CONFIG_CRTEXPORT_STACK_CHECK
	printk("%s: %zu of %zu bytes of stack never used\n", model, measurement->stack_unused,
	       measurement->stack_size);
#endif
#endif
#ifdef CONFIG_CRTEXPORT_STACK_CHECK
	if (measurement->stack_unused < CONFIG_CRTEXPORT_STACK_MARGIN) {
		printk("%s: only %zu bytes of stack are left; give the thread more\n", model,
		       measurement->stack_unused);
	}
#endif
	ARG_UNUSED(model);
	ARG_UNUSED(measurement);
}
