/* Reads the inputs of one inference from standard input, writes the outputs to standard output. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tvmgen_large.h"

static void *given(size_t size)
{
    void *const memory = malloc(size);
    if (memory == NULL || fread(memory, 1, size, stdin) != size) {
        exit(3);
    }
    return memory;
}

int main(void)
{
    struct tvmgen_large_inputs inputs;
    struct tvmgen_large_outputs outputs;
    const size_t input_sizes[] = {INPUT_SIZES}, output_sizes[] = {OUTPUT_SIZES};
    void *made[sizeof output_sizes / sizeof *output_sizes];
    const void **input = (const void **)&inputs;
    void **output = (void **)&outputs;

    for (size_t i = 0; i < sizeof input_sizes / sizeof *input_sizes; ++i) {
        input[i] = given(input_sizes[i]);
    }
    for (size_t i = 0; i < sizeof output_sizes / sizeof *output_sizes; ++i) {
        output[i] = made[i] = malloc(output_sizes[i]);
    }
    if (tvmgen_large_run(&inputs, &outputs) != 0) {
        return 4;
    }
    for (size_t i = 0; i < sizeof output_sizes / sizeof *output_sizes; ++i) {
        fwrite(made[i], 1, output_sizes[i], stdout);
    }
    return 0;
}
