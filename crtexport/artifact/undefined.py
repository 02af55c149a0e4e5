"""The symbols that generated code may leave to the firmware: memory functions and the compiler's
own runtime (libgcc, compiler-rt). Nothing else: no libc, no libm, no operating system."""

from __future__ import annotations

MEMORY = ("memcpy", "memmove", "memset")

_INTEGER_64 = (
    "__ashldi3", "__ashrdi3", "__divdi3", "__lshrdi3", "__moddi3", "__muldi3", "__udivdi3",
    "__umoddi3",
)
_INTEGER_32 = ("__divsi3", "__modsi3", "__mulsi3", "__udivsi3", "__umodsi3")
_SOFT_FLOAT = (
    "__addsf3", "__divsf3", "__eqsf2", "__extendhfsf2", "__fixsfdi", "__fixsfsi", "__floatdisf",
    "__floatsisf", "__floatunsisf", "__gesf2", "__gtsf2", "__lesf2", "__ltsf2", "__mulsf3",
    "__nesf2", "__subsf3", "__truncsfhf2", "__unordsf2",
)
_DOUBLE = (  # the quotients and remainders of FloorDiv and FloorMod
    "__adddf3", "__divdf3", "__eqdf2", "__extendsfdf2", "__fixdfdi", "__fixdfsi", "__floatdidf",
    "__floatsidf", "__gedf2", "__gtdf2", "__ledf2", "__ltdf2", "__muldf3", "__nedf2", "__subdf3",
    "__truncdfsf2", "__unorddf2",
)
_ARM_DOUBLE = (
    "__aeabi_d2f", "__aeabi_d2iz", "__aeabi_d2lz", "__aeabi_dadd", "__aeabi_dcmpeq",
    "__aeabi_dcmpge", "__aeabi_dcmpgt", "__aeabi_dcmple", "__aeabi_dcmplt", "__aeabi_dcmpun",
    "__aeabi_ddiv", "__aeabi_dmul", "__aeabi_dsub", "__aeabi_f2d", "__aeabi_i2d", "__aeabi_l2d",
)
_ARM = (
    "__aeabi_f2h", "__aeabi_f2iz", "__aeabi_f2lz", "__aeabi_fadd", "__aeabi_fcmpeq",
    "__aeabi_fcmpge", "__aeabi_fcmpgt", "__aeabi_fcmple", "__aeabi_fcmplt", "__aeabi_fcmpun",
    "__aeabi_fdiv", "__aeabi_fmul", "__aeabi_fsub", "__aeabi_h2f", "__aeabi_i2f", "__aeabi_idiv",
    "__aeabi_idivmod", "__aeabi_l2f", "__aeabi_lasr", "__aeabi_ldivmod", "__aeabi_llsl",
    "__aeabi_llsr", "__aeabi_lmul", "__aeabi_ui2f", "__aeabi_uidiv", "__aeabi_uidivmod",
    "__aeabi_uldivmod", "__gnu_f2h_ieee", "__gnu_h2f_ieee", "__gnu_thumb1_case_shi",
    "__gnu_thumb1_case_sqi", "__gnu_thumb1_case_uhi", "__gnu_thumb1_case_uqi",
)
_RISCV_SAVE_RESTORE = tuple(
    f"__riscv_{verb}_{count}" for verb in ("save", "restore") for count in range(13)
)

UNDEFINED_ALLOWED: tuple[str, ...] = tuple(
    sorted((
        *MEMORY, *_INTEGER_64, *_INTEGER_32, *_SOFT_FLOAT, *_DOUBLE, *_ARM, *_ARM_DOUBLE,
        *_RISCV_SAVE_RESTORE,
    ))
)
