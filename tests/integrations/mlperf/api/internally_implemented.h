/* SPDX-License-Identifier: Apache-2.0 */
/* The harness that the submitter's functions call, for tests. */
#ifndef TEST_INTERNALLY_IMPLEMENTED_H_
#define TEST_INTERNALLY_IMPLEMENTED_H_

#include <stddef.h>
#include <stdint.h>

#define EE_MODEL_VERSION_KWS01 "kws01"
#define EE_MODEL_VERSION_VWW01 "vww01"
#define EE_MODEL_VERSION_AD01 "ad01"
#define EE_MODEL_VERSION_IC01 "ic01"

void ee_serial_callback(char character);
void ee_serial_command_parser_callback(char *command);
void ee_benchmark_initialize(void);
size_t ee_get_buffer(uint8_t *buffer, size_t max_len);

#endif
