/* SPDX-License-Identifier: Apache-2.0 */
/* The part of string.h that generated code needs, for firmware without a C library. */
#ifndef CRT_STRING_H
#define CRT_STRING_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

void *memcpy(void *__restrict to, const void *__restrict from, size_t count);
void *memmove(void *to, const void *from, size_t count);
void *memset(void *to, int value, size_t count);
int memcmp(const void *a, const void *b, size_t count);

#ifdef __cplusplus
}
#endif

#endif
