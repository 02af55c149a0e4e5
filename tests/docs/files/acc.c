#include <stdint.h>

int32_t acc_conv(const void *input, void *output, void *context);
int32_t acc_conv(const void *input, void *output, void *context)
{
    (void)context;
    for (int i = 0; i < 4; ++i) {
        ((int8_t *)output)[i] = ((const int8_t *)input)[i];
    }
    return 0;
}

int32_t plain_c(const void *input, void *output);
int32_t plain_c(const void *input, void *output)
{
    return acc_conv(input, output, 0);
}
