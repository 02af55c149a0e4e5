/* SPDX-License-Identifier: Apache-2.0 */
/* Runs models and measures inferences, if Kconfig enables that.
 *
 *   int32_t status = CRTEXPORT_RUN(kws, &inputs, &outputs);
 *
 * is tvmgen_kws_run(&inputs, &outputs). With CONFIG_CRTEXPORT_TIMING it is timed, with
 * CONFIG_CRTEXPORT_STACK_CHECK the stack that is left to the calling thread is counted, and with
 * CONFIG_CRTEXPORT_PRINT both are printed. Nothing is shared between threads.
 */
#ifndef CRTEXPORT_MEASURE_H
#define CRTEXPORT_MEASURE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is not measured is 0. */
struct crtexport_measurement {
	uint32_t cycles;     /* of k_cycle_get_32(), whose frequency is sys_clock_hw_cycles_per_sec() */
	size_t stack_size;   /* of the calling thread, in bytes */
	size_t stack_unused; /* bytes of it that were never written since the thread started */
};

#ifdef CONFIG_CRTEXPORT_MEASURE

void crtexport_measure_start(struct crtexport_measurement *measurement);
void crtexport_measure_stop(struct crtexport_measurement *measurement);

/* Prints the measurement if CONFIG_CRTEXPORT_PRINT, and warns of a stack that is nearly full. */
void crtexport_measure_show(const char *model, const struct crtexport_measurement *measurement);

#define CRTEXPORT_RUN_MEASURED(measurement, model, ...)                                            \
	__extension__({                                                                            \
		crtexport_measure_start(measurement);                                              \
		int32_t crtexport_status = tvmgen_##model##_run(__VA_ARGS__);                      \
		crtexport_measure_stop(measurement);                                               \
		crtexport_status;                                                                  \
	})

#define CRTEXPORT_RUN(model, ...)                                                                  \
	__extension__({                                                                            \
		struct crtexport_measurement crtexport_taken;                                      \
		int32_t crtexport_result =                                                         \
			CRTEXPORT_RUN_MEASURED(&crtexport_taken, model, __VA_ARGS__);              \
		crtexport_measure_show(#model, &crtexport_taken);                                  \
		crtexport_result;                                                                  \
	})

#else

#define CRTEXPORT_RUN(model, ...) tvmgen_##model##_run(__VA_ARGS__)

#endif

#ifdef __cplusplus
}
#endif

#endif
