/* SPDX-License-Identifier: Apache-2.0 */
/* A program of an operating system: prints to standard output and counts nothing. */
#include <stdio.h>
#include <stdlib.h>

#include "crt_platform.h"

void crt_write(const char *text)
{
    (void)fputs(text, stdout);
}

void crt_exit(int status)
{
    exit(status);
}

uint64_t crt_counter(void)
{
    return 0;
}

int main(void)
{
    return crt_main();
}
