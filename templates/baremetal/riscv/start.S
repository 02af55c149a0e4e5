/* SPDX-License-Identifier: Apache-2.0 */
/* Reset and trap entry of a 32-bit RISC-V core in machine mode. */
    .option arch, +zicsr
    .section .vectors, "ax", @progbits
    .global crt_reset
crt_reset:
    .option push
    .option norelax
    la gp, __global_pointer$
    .option pop
    la sp, crt_stack_top
    la t0, trap
    csrw mtvec, t0
#ifdef __riscv_flen
    /* mstatus.FS: the floating-point registers may be used. */
    li t0, 0x2000
    csrs mstatus, t0
#endif
#ifdef __riscv_vector
    /* mstatus.VS: the same for vectors. */
    li t0, 0x200
    csrs mstatus, t0
#endif
    la t0, crt_data_load
    la t1, crt_data_start
    la t2, crt_data_end
1:  bgeu t1, t2, 2f
    lw t3, 0(t0)
    sw t3, 0(t1)
    addi t0, t0, 4
    addi t1, t1, 4
    j 1b
2:  la t1, crt_bss_start
    la t2, crt_bss_end
    jal t0, clear
    la t1, crt_model_bss_start
    la t2, crt_model_bss_end
    jal t0, clear
    call crt_main
    call crt_exit
clear:
    bgeu t1, t2, 3f
    sw zero, 0(t1)
    addi t1, t1, 4
    j clear
3:  jr t0

    .balign 4
trap:
    csrr a0, mcause
    csrr a1, mepc
    call crt_riscv_fault

    .section .text.crt_nothing, "ax", @progbits
    .global crt_nothing
crt_nothing:
    ret

    .section .text.crt_stack_pointer, "ax", @progbits
    .global crt_stack_pointer
crt_stack_pointer:
    mv a0, sp
    ret

    /* Semihosting: the debugger knows the call by the three instructions, which must not be
       compressed and must lie in one page. */
    .section .text.crt_semihost, "ax", @progbits
    .global crt_riscv_semihost
    .balign 16
    .option push
    .option norvc
crt_riscv_semihost:
    slli zero, zero, 0x1f
    ebreak
    srai zero, zero, 7
    ret
    .option pop
