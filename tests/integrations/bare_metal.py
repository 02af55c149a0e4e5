"""A Cortex-M4 program around what a build system would compile: start-up code, a linker script and
newlib's console by semihosting, for QEMU's machine mps2-an386."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.helpers import require, target_of

START = """\
#include <stdint.h>

extern uint32_t stack_top[];
void _start(void); /* newlib's: it calls main and exits */
void reset(void);
void stop(void);

__attribute__((section(".vectors"), used)) void (*const vectors[])(void) = {
    (void (*)(void))(uintptr_t)stack_top, reset, stop, stop, stop, stop, stop,
};

void reset(void)
{
    *(volatile uint32_t *)0xE000ED88u |= 0xF00000u; /* the FPU */
    __asm__ volatile("dsb\\n isb");
    _start();
}

void stop(void)
{
    for (;;) {
    }
}
"""
# QEMU loads what is in RAM to its place.
LINK = """\
ENTRY(reset)
MEMORY
{
    flash : ORIGIN = 0x00000000, LENGTH = 4M
    ram : ORIGIN = 0x20000000, LENGTH = 4M
}
SECTIONS
{
    .vectors : { KEEP(*(.vectors)) } > flash
    .text : { *(.text .text.*) KEEP(*(.init)) KEEP(*(.fini)) *(.rodata .rodata.*) } > flash
    .init_array : { __init_array_start = .; KEEP(*(.init_array*)) __init_array_end = .; } > flash
    .fini_array : { __fini_array_start = .; KEEP(*(.fini_array*)) __fini_array_end = .; } > flash
    .preinit_array : { __preinit_array_start = .; __preinit_array_end = .; } > flash
    .exidx : { __exidx_start = .; *(.ARM.exidx*) __exidx_end = .; } > flash
    .data : { *(.data .data.*) } > ram
    .bss : { __bss_start__ = .; *(.bss .bss.* COMMON) __bss_end__ = .; } > ram
    end = .;
    __end__ = .;
    stack_top = ORIGIN(ram) + LENGTH(ram);
}
"""
BOARD = "mps2_an386"


def need_tools() -> None:
    for tool in ("arm-none-eabi-gcc", "qemu-system-arm"):
        require(tool)


def surroundings(folder: Path) -> tuple[Path, list[str]]:
    """Writes both files; returns the start-up code and the options of the linker."""
    start, link = folder / "start.c", folder / "link.ld"
    start.write_text(START)
    link.write_text(LINK)
    return start, ["--specs=rdimon.specs", f"-Wl,-T,{link}"]


def linked(files: Iterable[Path], options: Iterable[str], folder: Path) -> Path:
    """Compiles C and C++ for the board, and links that with objects."""
    flags = [*target_of(BOARD).cflags, "-O2", "-Wall", "-Wextra", "-Werror", *options]
    start, link = surroundings(folder)
    objects = []
    for number, file in enumerate((*files, start)):
        if file.suffix == ".o":
            objects.append(file)
            continue
        objects.append(folder / f"{number}.o")
        own = ["-fno-exceptions", "-fno-rtti"] if file.suffix == ".cpp" else ["-std=c99"]
        done(("arm-none-eabi-gcc", *flags, *own, "-c", file, "-o", objects[-1]), folder)
    elf = folder / "program.elf"
    done(("arm-none-eabi-gcc", *flags, *objects, *link, "-lm", "-o", elf), folder)
    return elf


def done(command: Iterable[str | Path], folder: Path) -> str:
    ran = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True,
                         check=False, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def in_qemu(elf: Path) -> tuple[int, str]:
    """Returns a program's exit status and output."""
    ran = subprocess.run(
        ["qemu-system-arm", "-machine", "mps2-an386", "-display", "none", "-monitor", "none",
         "-serial", "none", "-chardev", "stdio,id=console",
         "-semihosting-config", "enable=on,target=native,chardev=console", "-kernel", str(elf)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120,
    )
    return ran.returncode, ran.stdout
