/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a model says about itself to TVM's AOT executor, compatible with TVM 0.18.
 * The guard is TVM's own: whichever header a file includes first is the one it gets.
 */
#ifndef TVM_RUNTIME_METADATA_TYPES_H_
#define TVM_RUNTIME_METADATA_TYPES_H_

#include <stdint.h>

#include <tvm/runtime/c_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The whole of it. Arguments of the run function are the inputs, the outputs, then the pools. */
struct TVMMetadata {
  int64_t version;
  const struct TVMTensorInfo *inputs;
  int64_t num_inputs;
  const struct TVMTensorInfo *outputs;
  int64_t num_outputs;
  const struct TVMTensorInfo *workspace_pools;
  int64_t num_workspace_pools;
  const struct TVMConstantInfo *constant_pools;
  int64_t num_constant_pools;
  const char *mod_name;
};

/* One tensor argument. */
struct TVMTensorInfo {
  const char *name;
  const int64_t *shape;
  int64_t num_shape;
  DLDataType dtype;
};

/* One constant that the caller has to place. */
struct TVMConstantInfo {
  const char *name_hint;
  int64_t byte_offset;
  int64_t data_len;
  const void *data_bytes;
};

#ifdef __cplusplus
}
#endif

#endif /* TVM_RUNTIME_METADATA_TYPES_H_ */
