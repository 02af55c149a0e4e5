/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The signature of packed functions, compatible with TVM 0.18.
 * The guard is TVM's own: whichever header a file includes first is the one it gets.
 */
#ifndef TVM_RUNTIME_C_BACKEND_API_H_
#define TVM_RUNTIME_C_BACKEND_API_H_

#include <tvm/runtime/c_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A function that can be found by name. type_codes[i] (a TVMArgTypeCode) says what args[i] holds.
 * Returns 0, or another number when it failed.
 */
typedef int (*TVMBackendPackedCFunc)(TVMValue *args, int *type_codes, int num_args,
                                     TVMValue *out_ret_value, int *out_ret_tcode,
                                     void *resource_handle);

#ifdef __cplusplus
}
#endif

#endif /* TVM_RUNTIME_C_BACKEND_API_H_ */
