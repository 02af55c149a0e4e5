/* SPDX-License-Identifier: Apache-2.0 */
    /* Test data: sample after sample, each input at a multiple of 16 bytes. */
    .section .rodata.crt_inputs, "a", %progbits
    .balign 16
    .global crt_inputs
crt_inputs:
    .incbin "inputs.bin"
    .global crt_inputs_end
crt_inputs_end:
#ifdef __linux__
    .section .note.GNU-stack, "", %progbits
#endif
