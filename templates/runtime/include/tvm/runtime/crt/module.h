/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The module that a firmware image carries, compatible with TVM 0.18.
 * The guard is TVM's own: whichever header a file includes first is the one it gets.
 */
#ifndef TVM_RUNTIME_CRT_MODULE_H_
#define TVM_RUNTIME_CRT_MODULE_H_

#include <tvm/runtime/c_backend_api.h>
#include <tvm/runtime/crt/func_registry.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct TVMModule {
  const TVMFuncRegistry *registry;
} TVMModule;

/* The one module of the image: all functions of all models in it. */
const TVMModule *TVMSystemLibEntryPoint(void);

#ifdef __cplusplus
}
#endif

#endif /* TVM_RUNTIME_CRT_MODULE_H_ */
