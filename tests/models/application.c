/*
 * An application in the style of microTVM's: the generated header, structs of inputs and outputs,
 * tvmgen_default_run; then the same by name, through the function registry and DLTensors.
 * Reads the input from stdin and writes both outputs to stdout.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <tvm/runtime/c_runtime_api.h>
#include <tvm/runtime/crt/module.h>

#include "tvmgen_default.h"


const TVMModule *TVMSystemLibEntryPoint(void);

static TVMBackendPackedCFunc find(const TVMFuncRegistry *registry, const char *wanted)
{
    const char *name = registry->names + 2;
    for (int index = 0; *name != '\0'; ++index) {
        if (strcmp(name, wanted) == 0) {
            return registry->funcs[index];
        }
        name += strlen(name) + 1;
    }
    return NULL;
}

static DLTensor tensor_of(void *data, int64_t *shape)
{
    DLTensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.data = data;
    tensor.device.device_type = kDLCPU;
    tensor.ndim = 1;
    tensor.shape = shape;
    return tensor;
}

static double input[(INPUT_SIZE + 7) / 8], output[(OUTPUT_SIZE + 7) / 8];

int main(void)
{
    if (fread(input, 1, INPUT_SIZE, stdin) != INPUT_SIZE) {
        return 1;
    }
    struct tvmgen_default_inputs inputs = {.INPUT_FIELD = input};
    struct tvmgen_default_outputs outputs = {.OUTPUT_FIELD = output};
    if (tvmgen_default_run(&inputs, &outputs) != 0) {
        return 2;
    }
    fwrite(output, 1, OUTPUT_SIZE, stdout);
    memset(output, 0x55, sizeof output);

    TVMBackendPackedCFunc run = find(TVMSystemLibEntryPoint()->registry, "tvmgen_default_run");
    if (run == NULL) {
        return 3;
    }
    int64_t shapes[2] = {INPUT_SIZE, OUTPUT_SIZE};
    DLTensor tensors[2] = {tensor_of(input, &shapes[0]), tensor_of(output, &shapes[1])};
    TVMValue args[2], result;
    args[0].v_handle = &tensors[0];
    args[1].v_handle = &tensors[1];
    int codes[2] = {kTVMDLTensorHandle, kTVMNDArrayHandle};
    int result_code = kTVMNullptr;
    if (run(args, codes, 2, &result, &result_code, NULL) != 0) {
        return 4;
    }
    fwrite(output, 1, OUTPUT_SIZE, stdout);
    return 0;
}
