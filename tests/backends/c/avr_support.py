"""Kernels and networks on a simulated ATmega2560, whose ``int`` and pointers have 16 bits."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crtexport.backends.c.helpers import select_helpers
from crtexport.backends.c.kernel import print_kernel
from crtexport.kir.language import Kernel
from tests.backends.c.c_support import PRELUDE, STRICT, entry, run_tool, runtime_include
from tests.helpers import require, unavailable

Array = npt.NDArray[Any]
Case = tuple[Kernel, Sequence[Array], Sequence[int | float]]

MCU = "atmega2560"
INCLUDES = (f"-I{runtime_include()}",)
ROOM = 6000
"""Bytes of RAM for the arrays of one kernel; the processor has 8192."""
_FLASH = 30000  # bytes of initial data in one program: they are in the first 64 KiB of flash
_KERNELS = 40  # in one program

CONSOLE = """\
#include <avr/interrupt.h>
#include <avr/io.h>
#include <avr/pgmspace.h>
#include <avr/sleep.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static void put(uint8_t character)
{
    while ((UCSR0A & (1u << UDRE0)) == 0u) {
    }
    UDR0 = character;
}

static void print(const void *bytes, uint16_t size)
{
    for (uint16_t i = 0; i < size; ++i) {
        const uint8_t byte = ((const uint8_t *)bytes)[i];
        put((uint8_t)"0123456789abcdef"[byte >> 4]);
        put((uint8_t)"0123456789abcdef"[byte & 15]);
        if ((i % 32 == 31) || (i + 1 == size)) {
            put((uint8_t)'\\n');
        }
    }
}

static void stop(void)
{
    put((uint8_t)'!');
    put((uint8_t)'\\n');
    cli();
    sleep_enable();
    sleep_cpu();
}
"""


def tools() -> tuple[str, str]:
    """The compiler and the simulator; without them the test is skipped."""
    compiler, simulator = require("avr-gcc"), require("simavr")
    done = subprocess.run(
        [compiler, f"-mmcu={MCU}", "-E", "-x", "c", "-"], input="#include <avr/io.h>\n", text=True,
        capture_output=True, check=False,
    )
    if done.returncode != 0:
        unavailable("avr-gcc", "avr-libc is not installed")
    return compiler, simulator


def compiled(source: Path, *flags: str) -> Path:
    """An object of a generated source, compiled without a warning."""
    result = source.with_suffix(".avr.o")
    run_tool(
        tools()[0], f"-mmcu={MCU}", "-Os", *STRICT, *flags, "-ffunction-sections", "-c", source,
        "-o", result,
    )
    return result


def printed(main: Path, objects: Iterable[Path], *flags: str, libraries: str = "-lm") -> bytes:
    """Returns what a program that has CONSOLE prints until it stops, decoded."""
    compiler, simulator = tools()
    program = main.with_suffix(".elf")
    run_tool(
        compiler, f"-mmcu={MCU}", "-Os", "-std=gnu99", "-Wl,--gc-sections", *flags, main, *objects,
        libraries, "-o", program,
    )
    done = subprocess.run(
        [simulator, "-m", MCU, "-f", "16000000", program], capture_output=True, text=True,
        check=False, timeout=300, errors="replace",
    )
    text = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    lines = [line.strip().rstrip(".") for line in text.splitlines()]
    assert "!" in lines, text[-2000:]
    return b"".join(bytes.fromhex(s) for s in lines if re.fullmatch("([0-9a-f]{2})+", s))


def run_on_avr(cases: Sequence[Case], folder: Path, *flags: str) -> list[list[Array]]:
    """The arrays of each kernel after it ran on them, on the simulated processor; ``flags`` are
    those of the compiler, beside the strictest."""
    found: list[list[Array]] = []
    for number, part in enumerate(_parts(cases)):
        output = _run(part, folder / f"part{number}.c", flags)
        for _, arrays, _ in part:
            result = []
            for array in arrays:
                result.append(np.frombuffer(output[: array.nbytes], array.dtype))
                output = output[array.nbytes :]
            found.append(result)
        assert not output
    return found


def _parts(cases: Sequence[Case]) -> Iterator[list[Case]]:
    part: list[Case] = []
    for case in cases:
        if part and (len(part) == _KERNELS or _size([*part, case]) > _FLASH):
            yield part
            part = []
        part.append(case)
    if part:
        yield part


def _size(part: Sequence[Case]) -> int:
    return sum(array.nbytes for _, arrays, _ in part for array in arrays)


def kernels_text(cases: Sequence[Case]) -> str:
    """A source with the kernels, each with a function that calls it."""
    symbols = [f"kernel{i}" for i in range(len(cases))]
    texts = [print_kernel(k, s, int_bits=16) for (k, _, _), s in zip(cases, symbols, strict=True)]
    needs = {need for text in texts for need in text.needs}
    helpers = dict.fromkeys(h.text for h in select_helpers(needs, int_bits=16))
    entries = [entry(k, s) for (k, _, _), s in zip(cases, symbols, strict=True)]
    return PRELUDE + "\n".join([*helpers, *(t.text for t in texts), *entries])


def _run(part: Sequence[Case], path: Path, flags: Sequence[str]) -> bytes:
    symbols = [f"kernel{i}" for i in range(len(part))]
    path.write_text(kernels_text(part))
    data = b"".join(array.tobytes() for _, arrays, _ in part for array in arrays)
    lines = [CONSOLE, f"static uint64_t room[{ROOM // 8}];"]
    lines += [f"static const uint8_t data[] PROGMEM = {{{','.join(map(str, data))},0}};"]
    body, at = [], 0
    for symbol, (kernel, arrays, params) in zip(symbols, part, strict=True):
        types = ["void **", *({"index": "ptrdiff_t", "i32": "int32_t", "f32": "float"}[
            p.type.value] for p in kernel.params)]
        lines.append(f"void call_{symbol}({', '.join(types)});")
        offset, places = 0, []
        for array in arrays:
            offset = -(-offset // 8) * 8
            body.append(f"memcpy_P((uint8_t *)room + {offset}, data + {at}, {array.nbytes});")
            places.append((offset, array.nbytes))
            offset, at = offset + array.nbytes, at + array.nbytes
        assert offset <= ROOM
        pointers = ", ".join(f"(uint8_t *)room + {place}" for place, _ in places) or "0"
        body.append(f"{{ void *b[] = {{{pointers}}};")
        body.append(f"call_{symbol}({', '.join(['b', *map(repr, params)])}); }}")
        body += [f"print((uint8_t *)room + {place}, {size});" for place, size in places]
    lines += ["int main(void)", "{", "UCSR0B = 1 << TXEN0;", *body, "stop();", "}"]
    main = path.with_name(f"{path.stem}_main.c")
    main.write_text("\n".join(lines))
    return printed(main, [compiled(path, *flags)])


def fits(arrays: Sequence[Array]) -> bool:
    """Returns whether the processor's RAM has room for them."""
    return sum(-(-array.nbytes // 8) * 8 for array in arrays) <= ROOM


