/* Two programs of an accelerator that isn't there, and one function without a device. */
#include "crt_simulated.h"

#include <stddef.h>
#include <stdint.h>

CRT_SIMULATED_DEVICE(TestAcc)

int32_t acc_flip(const void *x, void *y, void *context);
int32_t acc_look_up(const void *x, void *y, const void *table, void *context);
int32_t host_reverse(const void *x, void *y);
int32_t host_commands(
    void *context, void *commands, size_t commands_size, uint64_t *addresses, size_t *sizes,
    int count);

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

/* "Commands" for a function without a device: the bytes of the first address go to the second, each
   plus the first of the commands. */
int32_t host_commands(
    void *context, void *commands, size_t commands_size, uint64_t *addresses, size_t *sizes,
    int count)
{
    if ((context != NULL) || (commands_size != 256) || (count != 2) || (sizes[0] != sizes[1])) {
        return -77;
    }
    for (size_t i = 0; i < sizes[0]; ++i) {
        const int8_t value = ((const int8_t *)(uintptr_t)addresses[0])[i];
        ((int8_t *)(uintptr_t)addresses[1])[i] = (int8_t)(value + ((const int8_t *)commands)[0]);
    }
    return host_status;
}
