    .text
    .global crt_nothing
crt_nothing:
    ret
    .section .note.GNU-stack, "", %progbits
