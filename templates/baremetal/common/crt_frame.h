/* SPDX-License-Identifier: Apache-2.0 */
/* The framed answer: lines that begin with CRT:, closed by a checksum over all of them.
 *
 *   CRT:BEGIN <module> ...
 *   CRT:MODEL <number of the module that the next lines are about, where there are several>
 *   CRT:STATUS <sample> <what run returned>
 *   CRT:OUT <sample> <output> <offset> <bytes>
 *   CRT:TICKS <nothing> <first inference> <second inference>
 *   CRT:STACK <used> <size>
 *   CRT:END <CRC-32 of everything from CRT:BEGIN on>
 *
 * The outputs of the first inference come as a sample of their own, after the last: they must
 * equal those of sample 0, on which the inference ran twice. Numbers are hexadecimal; bytes are in
 * memory order.
 */
#ifndef CRT_FRAME_H
#define CRT_FRAME_H

#include <stdint.h>

void crt_frame_text(const char *text);
void crt_frame_number(uint64_t value);
void crt_frame_bytes(const uint8_t *bytes, uint32_t count);
void crt_frame_line(void);
void crt_frame_end(void);

#endif
