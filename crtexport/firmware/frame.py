"""Reads the framed answer that the firmware prints (``crt_frame.h`` describes it)."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from msgspec import Struct

from crtexport.firmware.sections import Sections
from crtexport.firmware.toolchain import log_tail
from crtexport.support.errors import RunFailedError

_BEGIN = "CRT:BEGIN"
_END = "CRT:END"
_FAULT = "CRT:FAULT"
_MODEL = "CRT:MODEL"


class Frame(Struct, frozen=True):
    """The answer of one model.

    ``outputs[sample][output]`` are bytes. Behind the samples' outputs are those of the first
    inference (on sample 0) and, for a model with a moving window, of one further result.
    ``ticks`` are the counter's differences: around an empty function, around the first and the
    second inference, and around the further result if there is one. ``stack`` is (used, reserved)
    bytes; None for programs under an operating system. ``statuses`` are the return values of
    ``run``.
    """

    statuses: tuple[int, ...]
    outputs: tuple[tuple[bytes, ...], ...]
    ticks: tuple[int, ...]
    stack: tuple[int, int] | None


def parse_frames(
    console: str, sizes: Sequence[tuple[int, ...]], sections: Sections
) -> tuple[Frame, ...]:
    """Returns the answers of all models in the console output; ``sizes`` are the bytes of each
    output of each.

    Raises RunFailedError, with the end of the console, when the processor faulted, the answer is
    not complete or its checksum is wrong.
    """
    lines = [line.rstrip("\r") for line in console.split("\n")]
    for line in lines:
        if line.startswith(_FAULT):
            raise _fault(line, console, sections)
    start = next((i for i, line in enumerate(lines) if line.startswith(_BEGIN)), None)
    if start is None:
        raise RunFailedError(f"the firmware did not answer; its console:\n{log_tail(console)}")
    body: list[str] = []
    for line in lines[start:]:
        if line.startswith(_END):
            break
        if line.startswith("CRT:"):
            body.append(line)
    else:
        raise RunFailedError(
            f"the firmware stopped in the middle of its answer; its console:\n{log_tail(console)}"
        )
    checksum = zlib.crc32("".join(f"{text}\n" for text in body).encode())
    if line.split()[1:] != [f"{checksum:x}"]:
        raise RunFailedError(
            f"the firmware's answer is damaged: its checksum is wrong; its console:\n"
            f"{log_tail(console)}"
        )
    try:
        return tuple(
            _decode(_lines_of(number, body), own) for number, own in enumerate(sizes)
        )
    except (ValueError, IndexError, KeyError) as error:
        raise RunFailedError(
            f"the firmware's answer makes no sense ({error}); its console:\n{log_tail(console)}"
        ) from error


def _lines_of(number: int, body: Sequence[str]) -> list[str]:
    """Returns the lines about model ``number``, without the line that begins them."""
    current, found = 0, []
    for line in body:
        kind, *words = line.split()
        if kind == _MODEL:
            current = int(words[0], 16)
        elif current == number:
            found.append(line)
    return found


def _fault(line: str, console: str, sections: Sections) -> RunFailedError:
    words = line.split()
    what = words[1] if len(words) > 1 else "fault"
    try:
        code, pc = int(words[2], 16), int(words[3], 16)
    except (IndexError, ValueError):
        return RunFailedError(f"the processor faulted; its console:\n{log_tail(console)}")
    if what == "stack-overflow":
        return RunFailedError(
            "the model needs more stack than the board sets aside",
            hint="give the board a larger stack_size",
        )
    return RunFailedError(
        f"the processor faulted ({what} 0x{code:x}) at {sections.describe(pc)}; its console:\n"
        f"{log_tail(console)}"
    )


def _decode(body: list[str], sizes: tuple[int, ...]) -> Frame:
    statuses: dict[int, int] = {}
    outputs: dict[tuple[int, int], bytearray] = {}
    ticks: tuple[int, ...] = (0, 0, 0)
    stack: tuple[int, int] | None = None
    for line in body:
        kind, *words = line.split()
        if kind == "CRT:STATUS":
            sample, status = (int(word, 16) for word in words)
            statuses[sample] = status - (1 << 32) if status >> 31 else status
        elif kind == "CRT:OUT":
            sample, output, at = (int(word, 16) for word in words[:3])
            part = outputs.setdefault((sample, output), bytearray())
            if at != len(part):
                raise ValueError(f"output {output} of sample {sample} has a gap at {at}")
            part += bytes.fromhex(words[3])
        elif kind == "CRT:TICKS":
            nothing, first, second, *further = (int(word, 16) for word in words)
            ticks = (nothing, first, second, *further)
        elif kind == "CRT:STACK":
            used, reserved = (int(word, 16) for word in words)
            stack = (used, reserved)
    rows = []
    for sample in range(len(statuses)):
        row = tuple(bytes(outputs[sample, i]) for i in range(len(sizes)))
        if tuple(map(len, row)) != sizes:
            raise ValueError(f"sample {sample} has outputs of other sizes")
        rows.append(row)
    return Frame(tuple(statuses[i] for i in range(len(statuses))), tuple(rows), ticks, stack)
