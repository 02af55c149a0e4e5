"""Builds firmware for a board and runs it: outputs, instructions, flash, RAM and stack."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from crtexport.firmware.architectures import has_start_up
from crtexport.firmware.board_schema import Board, NativeRunner, NoRunner, QemuRunner
from crtexport.firmware.frame import Frame, parse_frames
from crtexport.firmware.parts import FirmwareParts
from crtexport.firmware.project import ELF, sample_layout, write_inputs, write_project
from crtexport.firmware.qemu import Mark, QemuRun, Watching, build_plugin, run_program, run_qemu
from crtexport.firmware.samples import Array, Sample, decode_outputs, pack_samples
from crtexport.firmware.sections import TEST_INPUTS, Sections, Symbol, read_sections
from crtexport.firmware.spent import Cycles, Misses, Spent
from crtexport.firmware.thumb.timing import core_of
from crtexport.firmware.toolchain import find_tool, run_tool
from crtexport.firmware.waiting import DEFAULT_TIMEOUT
from crtexport.mlf.libraries import locate
from crtexport.support.errors import CrtExportError, RunFailedError
from crtexport.support.outputs.folders import settle
from crtexport.support.short import count, line, sizes, table
from crtexport.support.this_processor import check_processor

_MEASURED = "crt_counter"
_NANOSECONDS = 1_000_000_000


class BuildResult(Struct, frozen=True):
    """The linked program, and its sections and symbols. ``unrecorded``: why the program compares no
    outputs, "" if it does."""

    elf: Path
    sections: Sections
    unrecorded: str = ""

    def __repr__(self) -> str:
        return line("BuildResult", f"{self.elf}:", sizes(
            {"flash": self.sections.flash_size, "RAM": self.sections.ram_size}
        ))


class WatchedCall(Struct, frozen=True):
    """A call of ``symbol`` in the second inference: what was executed from its entry to the entry
    of the next watched function, or to the end of the inference.
    """

    symbol: str
    spent: Spent

    @property
    def instructions(self) -> int:
        return self.spent.instructions


class RunResult(Struct, frozen=True):
    """The result of running one model's firmware.

    ``outputs[sample][output]`` are arrays. ``instructions_first`` and ``instructions_second`` are
    those of the first two inferences, both on sample 0; ``instructions_further`` those of each
    further result of a moving window. They are None if nothing counts them. ``exact``: they were
    counted one by one, not estimated by a timer. ``spent`` are instructions, cycles and misses of
    the second inference, None without QEMU's plugin. ``flash`` and ``ram`` are bytes by section:
    the model's are called ``.model_*``, ``.test_inputs`` is one sample. ``stack`` is the bytes that
    an inference used below its call, None if unknown. ``calls`` are those of watched functions in
    the second inference, None if QEMU can't watch them. ``symbols`` are the program's. If a program
    has several models, each has a result; sections and symbols are of the whole program.
    """

    outputs: tuple[tuple[Array, ...], ...]
    instructions_first: int | None
    instructions_second: int | None
    exact: bool
    flash: dict[str, int]
    ram: dict[str, int]
    stack: int | None
    symbols: tuple[Symbol, ...] = ()
    calls: tuple[WatchedCall, ...] | None = None
    spent: Spent | None = None
    instructions_further: int | None = None

    def __repr__(self) -> str:
        return line(
            "RunResult", f"{count(len(self.outputs), 'sample')},", *(
                [f"{self.instructions_second:,} instructions,"]
                if self.instructions_second is not None else []
            ), sizes(self._sizes()),
        )

    def _repr_html_(self) -> str:
        return table("Measured", [
            ("samples", len(self.outputs)), ("instructions", self.instructions_second),
            *([("instructions of a further result", self.instructions_further)]
              if self.instructions_further is not None else []),
            *((f"{name}, bytes", size) for name, size in self._sizes().items()),
        ])

    def _sizes(self) -> dict[str, int]:
        flash = sum(size for name, size in self.flash.items() if name != TEST_INPUTS)
        return {"flash": flash, "RAM": sum(self.ram.values()), "stack": self.stack or 0}


def build(
    parts: FirmwareParts,
    board: Board,
    out_dir: Path,
    program: Mapping[str, bytes] | None = None,
    *,
    force: bool = False,
) -> BuildResult:
    """Writes a project into ``out_dir``, builds it with the board's toolchain, and returns the
    program.

    Its C files are ``program``, by name; by default the program is the one that :func:`run_all`
    measures with, on zeros. ``force`` replaces files that crtexport didn't write. Raises
    ToolMissingError for a missing program, and RunFailedError (with the end of the compiler's
    output) for a failed build.
    """
    if program is None:
        built = _build(parts, board, out_dir, (), force=force)
    else:
        _find_compiler(board)
        locate(parts.libraries)
        write_project(parts, board, out_dir, program=program, force=force)
        built = _make(board, out_dir, None, "-B")
    settle(out_dir)
    return built


def _build(
    parts: FirmwareParts, board: Board, folder: Path, inputs: Sequence[Sample], *,
    count_by_timer: bool = False, force: bool = False,
) -> BuildResult:
    """Builds the measuring program; its inputs may be replaced afterwards, and it be built again.

    ``inputs`` are compiled in; without any, the inputs are zeros. ``count_by_timer``: on Cortex-M,
    SysTick estimates instructions. Raises CrtExportError for inputs that are not the model's.
    """
    _find_compiler(board)
    locate(parts.libraries)
    write_project(parts, board, folder, count_by_timer=count_by_timer, force=force)
    samples = pack_samples(parts, inputs) or [bytes(sample_layout(parts.all_inputs)[1])]
    # All anew: what an earlier build has left may be of other flags.
    return _make(board, folder, samples, "-B")


def _find_compiler(board: Board) -> None:
    tools = board.toolchain
    if not has_start_up(board.architecture):
        raise CrtExportError(
            "there is no start-up code for this processor", location=(board.name, "architecture"),
            hint=f"--format {' or '.join((*board.build_systems, 'cmake'))} writes a library for a"
            " build that has it",
        )
    find_tool(tools.compiler[0], tools.package, tools.url)
    find_tool("make", "make")


def run(
    parts: FirmwareParts,
    board: Board,
    inputs: Sequence[Sample],
    *,
    timeout: float = DEFAULT_TIMEOUT,
    out_dir: Path | None = None,
    watch: Sequence[str] = (),
    force: bool = False,
) -> RunResult:
    """:func:`run_all` for firmware of one model. Raises CrtExportError for several."""
    if parts.others:
        raise CrtExportError(
            f"this runs one model, but there are {', '.join(m.module for m in parts.models)}"
        )
    (result,) = run_all(
        parts, board, inputs, timeout=timeout, out_dir=out_dir, watch=watch, force=force
    )
    return result


def run_all(
    parts: FirmwareParts,
    board: Board,
    inputs: Sequence[Sample],
    *,
    timeout: float = DEFAULT_TIMEOUT,
    out_dir: Path | None = None,
    watch: Sequence[str] = (),
    force: bool = False,
) -> tuple[RunResult, ...]:
    """Builds the firmware, boots it and returns every model's outputs for every sample of
    ``inputs``; several models run alternately.

    A sample has the inputs of all models, in their order, or by name if there is one model.
    ``watch`` names functions of the program whose calls are counted one by one, where QEMU can.
    Samples that do not fit the board's flash together take several boots of up to ``timeout``
    seconds each. The project stays in ``out_dir`` if there is one; ``force`` replaces files there
    that are not ours. Raises what :func:`build` raises, ToolMissingError where QEMU isn't
    installed, and RunFailedError when the firmware faults, hangs, prints no valid answer or its
    model returns an error, or when the second inference gives other outputs than the first.
    """
    if isinstance(board.runner, NoRunner):
        raise CrtExportError(
            f"there is no emulator for this board: {board.runner.reason}",
            location=(board.name, "runner"),
            hint="`crtexport build` makes its firmware, to be flashed",
        )
    if isinstance(board.runner, NativeRunner):
        check_processor(board.cpu.name, board.cpu.features, board.name)
    _find_compiler(board)
    if isinstance(board.runner, QemuRunner):
        find_tool(board.runner.command[0], board.runner.package)
    if not inputs:
        raise CrtExportError("there are no inputs to run the model on", location=parts.module)
    if out_dir is not None:
        results = _run_in(_Execution(parts, board, timeout, out_dir, tuple(watch), force), inputs)
        settle(out_dir)
        return results
    with tempfile.TemporaryDirectory(prefix="crtexport-") as folder:
        return _run_in(_Execution(parts, board, timeout, Path(folder), tuple(watch)), inputs)


class _Execution(Struct, frozen=True):
    """The firmware to run, and its board and folder."""

    parts: FirmwareParts
    board: Board
    timeout: float
    folder: Path
    watch: tuple[str, ...]
    force: bool = False


class _Answers(Struct, frozen=True):
    """Outputs of all samples for each model, and the measurements of the first boot."""

    outputs: tuple[list[tuple[bytes, ...]], ...]
    frames: tuple[Frame, ...]
    marks: tuple[Mark, ...] | None
    sections: Sections


def _run_in(job: _Execution, inputs: Sequence[Sample]) -> tuple[RunResult, ...]:
    parts, board = job.parts, job.board
    samples = pack_samples(parts, inputs)
    counts_itself = board.counter.kind != "systick"
    answers: _Answers | None = None
    if not counts_itself or job.watch:
        first = _build(parts, board, job.folder, inputs[:1], force=job.force)
        plugin = build_plugin(board, job.folder / "build")
        answers = _ask(job, samples, first, plugin) if plugin else None
    if answers is None:
        # No plugin here, or a QEMU without support for plugins: the board's counter is used.
        first = _build(
            parts, board, job.folder, inputs[:1], count_by_timer=not counts_itself, force=job.force
        )
        answers = _ask(job, samples, first, None)
    if answers is None:
        raise RunFailedError("the firmware never ran")
    exact = counts_itself or answers.marks is not None
    return tuple(
        _result(job, answers, number, exact=exact) for number in range(len(parts.models))
    )


def _result(job: _Execution, answers: _Answers, number: int, *, exact: bool) -> RunResult:
    counted = _instructions(job.board, answers, number)
    spent = _spent(answers, number)
    stack = answers.frames[number].stack
    return RunResult(
        outputs=tuple(
            decode_outputs(job.parts.models[number].outputs, row) for row in answers.outputs[number]
        ),
        instructions_first=counted[0] if counted else None,
        instructions_second=counted[1] if counted else None,
        instructions_further=counted[2] if counted[2:] else None,
        exact=bool(counted) and exact,
        flash=answers.sections.flash,
        ram=answers.sections.ram,
        stack=stack[0] if stack else None,
        symbols=answers.sections.symbols,
        calls=_watched(answers, number, job.watch),
        spent=spent[1] if spent else None,
    )


def _ask(
    job: _Execution, samples: Sequence[bytes], first: BuildResult, plugin: Path | None
) -> _Answers | None:
    """Boots as often as the samples need; returns None if QEMU does not take the plugin."""
    parts, board = job.parts, job.board
    outputs: tuple[list[tuple[bytes, ...]], ...] = tuple([] for _ in parts.models)
    measured: tuple[tuple[Frame, ...], tuple[Mark, ...] | None] | None = None
    batch = _samples_per_boot(board, first.sections, len(samples[0]))
    for start in range(0, len(samples), batch):
        chosen = samples[start : start + batch]
        built = first if start == 0 and len(chosen) == 1 else _make(board, job.folder, chosen)
        ran = _boot(job, built, plugin)
        if plugin is not None and ran.marks is None:
            return None
        frames = parse_frames(
            ran.console, [tuple(p.nbytes for p in model.outputs) for model in parts.models],
            built.sections,
        )
        for model, frame, rows in zip(parts.models, frames, outputs, strict=True):
            check_frame(model, frame, start, len(chosen))
            rows.extend(frame.outputs[: len(chosen)])
        measured = measured or (frames, ran.marks)
    if measured is None:
        return None
    return _Answers(outputs, *measured, first.sections)


def _make(
    board: Board, folder: Path, samples: Sequence[bytes] | None, *options: str
) -> BuildResult:
    """Builds the project in ``folder``, with new inputs where it has any."""
    if samples is not None:
        write_inputs(folder, samples)
    what = f"building firmware for {board.name}"
    run_tool(["make", "-s", "-j2", *options], cwd=folder, what=what)
    elf = folder / ELF
    return BuildResult(elf, read_sections(elf, board))


def _samples_per_boot(board: Board, sections: Sections, sample_size: int) -> int:
    """Returns how many samples fit beside the program, which was built with one."""
    if board.hosted:
        return 1 << 20
    memory = board.placement.constants
    # The sections of all flash memories together: an upper bound of what is in this one.
    free = board.memory[memory].size - sum(sections.flash.values())
    return 1 + max(free, 0) // sample_size


def _boot(job: _Execution, built: BuildResult, plugin: Path | None) -> QemuRun:
    board = job.board
    if isinstance(board.runner, QemuRunner):
        watching = _watching(job, built, plugin) if plugin is not None else None
        return run_qemu(board, built.elf, timeout=job.timeout, watching=watching)
    if isinstance(board.runner, NativeRunner):
        console, status = run_program(
            [str(built.elf.resolve())], cwd=built.elf.parent, timeout=job.timeout
        )
        if status < 0:
            raise RunFailedError(f"the program ended by signal {-status}")
        return QemuRun(console, None)
    raise CrtExportError("this board has no runner", location=board.name)


def _watching(job: _Execution, built: BuildResult, plugin: Path) -> Watching:
    """Returns what is counted: cycles and misses where the board's processor and flash are known.
    """
    board, names = job.board, (_MEASURED, *job.watch)
    read_only = [board.memory[name] for name in board.flash]
    return Watching(
        plugin, tuple(built.sections.address(name) for name in names), core_of(board.cpu.name),
        board.flash_timing, max((memory.origin + memory.size for memory in read_only), default=0),
    )


def check_frame(parts: FirmwareParts, frame: Frame, start: int, count: int) -> None:
    """Raises RunFailedError unless ``frame`` answers ``count`` samples, from ``start`` on, alike.
    """
    further = parts.goes_on
    answered = len(frame.statuses) - 1 - further
    if answered != count:
        raise RunFailedError(f"the firmware answered {answered} samples instead of {count}")
    for index, status in enumerate(frame.statuses[:count]):
        if status != 0:
            raise RunFailedError(
                f"tvmgen_{parts.module}_run returned {status} for sample {start + index}"
            )
    if frame.outputs[0] != frame.outputs[count]:
        raise RunFailedError(
            "the second inference on the same input gives other outputs than the first",
            location=parts.module,
        )
    if further and (frame.statuses[-1] or frame.outputs[-1] != frame.outputs[count]):
        raise RunFailedError(
            "rows that go on from other results give another result than the same rows alone",
            location=parts.module,
        )


def _measurements(answers: _Answers, number: int) -> tuple[tuple[int, int], ...] | None:
    """Returns the positions (begin, end) of a model's measurements in the marks: a warm-up and an
    empty function, the first and the second inference, and a further result if its window moves on.
    None without marks.

    The firmware makes the first three for one model after the other, then all second inferences,
    then all further results.
    """
    if answers.marks is None:
        return None
    address, models = answers.sections.address(_MEASURED), len(answers.frames)
    ends = [i for i, mark in enumerate(answers.marks) if mark.address == address]
    further = [n for n, frame in enumerate(answers.frames) if frame.ticks[3:]]
    wanted = 2 * (4 * models + len(further))
    if len(ends) != wanted:
        raise RunFailedError(f"QEMU's plugin counted {len(ends)} marks instead of {wanted}")
    pairs = list(zip(ends[::2], ends[1::2], strict=True))
    found = [*pairs[3 * number : 3 * number + 3], pairs[3 * models + number]]
    if number in further:
        found.append(pairs[4 * models + further.index(number)])
    return tuple(found)


def _instructions(board: Board, answers: _Answers, number: int) -> tuple[int, ...]:
    """Returns the instructions of the first and the second inference, and of a further result if
    there is one, including call and return; empty if they weren't counted."""
    if board.counter.kind == "none":
        return ()
    if spent := _spent(answers, number):
        return tuple(each.instructions for each in spent)
    nothing, *counted = answers.frames[number].ticks
    if board.counter.kind == "systick" and board.counter.hz is not None:
        scale = _NANOSECONDS / board.counter.hz
        return tuple(round((ticks - nothing) * scale) for ticks in counted)
    # "Nothing" is a call of a function of one instruction.
    return tuple(ticks - nothing + 1 for ticks in counted)


def _spent(answers: _Answers, number: int) -> tuple[Spent, ...]:
    """Returns what the first and the second inference took, and a further result if there is one;
    empty without marks."""
    measured = _measurements(answers, number)
    if answers.marks is None or measured is None:
        return ()
    marks = answers.marks
    _, nothing, *counted = (
        marks[end].before - marks[start].before for start, end in measured
    )
    # "Nothing" is a call of a function of one instruction.
    one = Spent(1, Cycles(1, 1, 1), Misses(0, 0, 0))
    return tuple(spent - nothing + one for spent in counted)


def _watched(
    answers: _Answers, number: int, watch: Sequence[str]
) -> tuple[WatchedCall, ...] | None:
    """Returns the watched functions' calls within a model's second inference."""
    measured = _measurements(answers, number)
    if answers.marks is None or measured is None:
        return None
    start, end = measured[3]
    during = answers.marks[start + 1 : end + 1]
    names = {answers.sections.address(name): name for name in watch}
    return tuple(
        WatchedCall(names[mark.address], after.before - mark.before)
        for mark, after in itertools.pairwise(during)
    )
