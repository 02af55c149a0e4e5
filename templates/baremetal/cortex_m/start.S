/* SPDX-License-Identifier: Apache-2.0 */
/* Vector table and reset: works on every Cortex-M, from the M0's instructions up. */
    .syntax unified
    .section .vectors, "a", %progbits
    .balign 128
    .word crt_stack_top
    .word crt_reset
    .rept 13 /* NMI, faults, SVCall, debug, PendSV and the reserved ones between them */
    .word fault
    .endr
    .word crt_systick

    .section .text.crt_reset, "ax", %progbits
    .global crt_reset
    .type crt_reset, %function
    .thumb_func
crt_reset:
    ldr r0, =crt_stack_top
    mov sp, r0
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
    /* CPACR: full access to the coprocessors 10 and 11, floating point and vectors. */
    ldr r0, =0xE000ED88
    ldr r1, [r0]
    movs r2, #0xF
    lsls r2, r2, #20
    orrs r1, r1, r2
    str r1, [r0]
    dsb
    isb
#endif
#if defined(__ARM_FEATURE_MVE)
    /* CCR.LOB: loops that keep their count in a register may cache it. */
    ldr r0, =0xE000ED14
    ldr r1, [r0]
    movs r2, #1
    lsls r2, r2, #19
    orrs r1, r1, r2
    str r1, [r0]
    dsb
    isb
#endif
    bl crt_cortex_m_memories
    bl crt_main
    bl crt_exit
    .size crt_reset, . - crt_reset

    /* The processor left r0-r3, r12, lr, pc and xPSR on the stack: hand on where. */
    .section .text.crt_fault_entry, "ax", %progbits
    .type fault, %function
    .thumb_func
fault:
    mov r0, sp
    bl crt_cortex_m_fault
    .size fault, . - fault

    .section .text.crt_nothing, "ax", %progbits
    .global crt_nothing
    .type crt_nothing, %function
    .thumb_func
crt_nothing:
    bx lr
    .size crt_nothing, . - crt_nothing

    .section .text.crt_stack_pointer, "ax", %progbits
    .global crt_stack_pointer
    .type crt_stack_pointer, %function
    .thumb_func
crt_stack_pointer:
    mov r0, sp
    bx lr
    .size crt_stack_pointer, . - crt_stack_pointer
