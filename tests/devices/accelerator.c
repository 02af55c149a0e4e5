/* Two programs of an accelerator that isn't there, and one function without a device. */
#include "crt_simulated.h"

#include <stddef.h>

CRT_SIMULATED_DEVICE(TestAcc)

int32_t acc_flip(const void *x, void *y, void *context);
int32_t acc_look_up(const void *x, void *y, const void *table, void *context);
int32_t host_reverse(const void *x, void *y);

int32_t host_status;

int32_t acc_flip(const void *x, void *y, void *context)
{
    const int32_t status = crt_simulated_run(context);
    for (size_t i = 0; (i < 24) && (status == 0); ++i) {
        ((int8_t *)y)[i] = (int8_t)(((const int8_t *)x)[i] ^ 0x55);
    }
    return status;
}

int32_t acc_look_up(const void *x, void *y, const void *table, void *context)
{
    const int32_t status = crt_simulated_run(context);
    for (size_t i = 0; (i < 10) && (status == 0); ++i) {
        ((int8_t *)y)[i] = ((const int8_t *)table)[((const int8_t *)x)[i] + 128];
    }
    return status;
}

int32_t host_reverse(const void *x, void *y)
{
    for (size_t i = 0; i < 10; ++i) {
        ((int8_t *)y)[9 - i] = ((const int8_t *)x)[i];
    }
    return host_status;
}
