/* What CMSIS-NN 7.0 declares of the functions that generated code calls, for type checks alone. */
#ifndef ARM_NNFUNCTIONS_H
#define ARM_NNFUNCTIONS_H

#include <stdint.h>

typedef enum {
    ARM_CMSIS_NN_SUCCESS = 0,
    ARM_CMSIS_NN_ARG_ERROR = -1,
    ARM_CMSIS_NN_NO_IMPL_ERROR = -2,
    ARM_CMSIS_NN_FAILURE = -3
} arm_cmsis_nn_status;

typedef struct { void *buf; int32_t size; } cmsis_nn_context;
typedef struct { int32_t n; int32_t h; int32_t w; int32_t c; } cmsis_nn_dims;
typedef struct { int32_t w; int32_t h; } cmsis_nn_tile;
typedef struct { int32_t min; int32_t max; } cmsis_nn_activation;
typedef struct { int32_t *multiplier; int32_t *shift; } cmsis_nn_per_channel_quant_params;
typedef struct { int32_t multiplier; int32_t shift; } cmsis_nn_per_tensor_quant_params;
typedef struct {
    int32_t input_offset;
    int32_t output_offset;
    cmsis_nn_tile stride;
    cmsis_nn_tile padding;
    cmsis_nn_tile dilation;
    cmsis_nn_activation activation;
} cmsis_nn_conv_params;
typedef struct {
    int32_t input_offset;
    int32_t output_offset;
    int32_t ch_mult;
    cmsis_nn_tile stride;
    cmsis_nn_tile padding;
    cmsis_nn_tile dilation;
    cmsis_nn_activation activation;
} cmsis_nn_dw_conv_params;
typedef struct {
    int32_t input_offset;
    int32_t filter_offset;
    int32_t output_offset;
    cmsis_nn_activation activation;
} cmsis_nn_fc_params;
typedef struct {
    cmsis_nn_tile stride;
    cmsis_nn_tile padding;
    cmsis_nn_activation activation;
} cmsis_nn_pool_params;

int32_t arm_convolve_wrapper_s8_get_buffer_size(
    const cmsis_nn_conv_params *, const cmsis_nn_dims *, const cmsis_nn_dims *,
    const cmsis_nn_dims *);
arm_cmsis_nn_status arm_convolve_wrapper_s8(
    const cmsis_nn_context *, const cmsis_nn_conv_params *,
    const cmsis_nn_per_channel_quant_params *, const cmsis_nn_dims *, const int8_t *,
    const cmsis_nn_dims *, const int8_t *, const cmsis_nn_dims *, const int32_t *,
    const cmsis_nn_dims *, int8_t *);
int32_t arm_depthwise_conv_wrapper_s8_get_buffer_size(
    const cmsis_nn_dw_conv_params *, const cmsis_nn_dims *, const cmsis_nn_dims *,
    const cmsis_nn_dims *);
arm_cmsis_nn_status arm_depthwise_conv_wrapper_s8(
    const cmsis_nn_context *, const cmsis_nn_dw_conv_params *,
    const cmsis_nn_per_channel_quant_params *, const cmsis_nn_dims *, const int8_t *,
    const cmsis_nn_dims *, const int8_t *, const cmsis_nn_dims *, const int32_t *,
    const cmsis_nn_dims *, int8_t *);
int32_t arm_fully_connected_s8_get_buffer_size(const cmsis_nn_dims *);
arm_cmsis_nn_status arm_fully_connected_s8(
    const cmsis_nn_context *, const cmsis_nn_fc_params *, const cmsis_nn_per_tensor_quant_params *,
    const cmsis_nn_dims *, const int8_t *, const cmsis_nn_dims *, const int8_t *,
    const cmsis_nn_dims *, const int32_t *, const cmsis_nn_dims *, int8_t *);
arm_cmsis_nn_status arm_fully_connected_per_channel_s8(
    const cmsis_nn_context *, const cmsis_nn_fc_params *,
    const cmsis_nn_per_channel_quant_params *, const cmsis_nn_dims *, const int8_t *,
    const cmsis_nn_dims *, const int8_t *, const cmsis_nn_dims *, const int32_t *,
    const cmsis_nn_dims *, int8_t *);
int32_t arm_avgpool_s8_get_buffer_size(const int, const int);
arm_cmsis_nn_status arm_avgpool_s8(
    const cmsis_nn_context *, const cmsis_nn_pool_params *, const cmsis_nn_dims *, const int8_t *,
    const cmsis_nn_dims *, const cmsis_nn_dims *, int8_t *);
arm_cmsis_nn_status arm_max_pool_s8(
    const cmsis_nn_context *, const cmsis_nn_pool_params *, const cmsis_nn_dims *, const int8_t *,
    const cmsis_nn_dims *, const cmsis_nn_dims *, int8_t *);
void arm_softmax_s8(
    const int8_t *, const int32_t, const int32_t, const int32_t, const int32_t, const int32_t,
    int8_t *);

#endif
