/* SPDX-License-Identifier: Apache-2.0 */
/* Entry from a multiboot loader: flat 32-bit protected mode, interrupts off. */
    .set MULTIBOOT_MAGIC, 0x1BADB002
    .set MULTIBOOT_FLAGS, 0

    .section .vectors, "a", @progbits
    .balign 4
    .long MULTIBOOT_MAGIC
    .long MULTIBOOT_FLAGS
    .long -(MULTIBOOT_MAGIC + MULTIBOOT_FLAGS)

    .section .text.crt_reset, "ax", @progbits
    .global crt_reset
crt_reset:
    cli
    cld
    mov $crt_stack_top, %esp
    lgdt gdt_pointer
    ljmp $0x08, $1f
1:  mov $0x10, %ax
    mov %ax, %ds
    mov %ax, %es
    mov %ax, %ss
    /* CR0: no emulation (EM), no lazy switching (TS), native x87 errors (NE). */
    mov %cr0, %eax
    and $~0x0c, %eax
    or $0x22, %eax
    mov %eax, %cr0
    fninit
    mov $crt_data_load, %esi
    mov $crt_data_start, %edi
    mov $crt_data_end, %ecx
    sub %edi, %ecx
    rep movsb
    xor %eax, %eax
    mov $crt_bss_start, %edi
    mov $crt_bss_end, %ecx
    sub %edi, %ecx
    rep stosb
    mov $crt_model_bss_start, %edi
    mov $crt_model_bss_end, %ecx
    sub %edi, %ecx
    rep stosb
    call crt_i386_traps
    call crt_main
    push %eax
    call crt_exit
    hlt

    .section .text.crt_nothing, "ax", @progbits
    .global crt_nothing
crt_nothing:
    ret

    .section .text.crt_stack_pointer, "ax", @progbits
    .global crt_stack_pointer
crt_stack_pointer:
    lea 4(%esp), %eax
    ret

    /* One entry per exception: vector and error code on the stack, whether or not there is one. */
    .section .text.crt_i386_entries, "ax", @progbits
    .macro entry vector, has_code
    .balign 16
    .if \has_code == 0
    push $0
    .endif
    push $\vector
    jmp fault
    .endm
    .global crt_i386_entries
    .balign 16
crt_i386_entries:
    .irp vector, 0, 1, 2, 3, 4, 5, 6, 7
    entry \vector, 0
    .endr
    entry 8, 1
    entry 9, 0
    .irp vector, 10, 11, 12, 13, 14
    entry \vector, 1
    .endr
    entry 15, 0
    entry 16, 0
    entry 17, 1
    entry 18, 0
    entry 19, 0
fault:
    call crt_i386_fault

    .section .rodata.crt_gdt, "a", @progbits
    .balign 8
gdt:
    .quad 0
    .quad 0x00CF9A000000FFFF
    .quad 0x00CF92000000FFFF
gdt_pointer:
    .word 23
    .long gdt
    .section .note.GNU-stack, "", @progbits
