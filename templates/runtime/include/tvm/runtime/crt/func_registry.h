/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of functions that can be found by name, compatible with TVM 0.18.
 * The guard is TVM's own: whichever header a file includes first is the one it gets.
 */
#ifndef TVM_RUNTIME_CRT_FUNC_REGISTRY_H_
#define TVM_RUNTIME_CRT_FUNC_REGISTRY_H_

#include <tvm/runtime/c_backend_api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint16_t tvm_function_index_t;
typedef uint16_t tvm_module_index_t;

/*
 * names: a uint16_t in the byte order of the target, which is the number of functions, then the
 * name of each function with its terminating NUL, then another NUL. funcs: in the same order.
 */
typedef struct TVMFuncRegistry {
  const char *names;
  const TVMBackendPackedCFunc *funcs;
} TVMFuncRegistry;

#ifdef __cplusplus
}
#endif

#endif /* TVM_RUNTIME_CRT_FUNC_REGISTRY_H_ */
