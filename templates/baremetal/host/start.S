/* SPDX-License-Identifier: Apache-2.0 */
    .text
    .global crt_nothing
crt_nothing:
    ret
    .section .note.GNU-stack, "", %progbits
