"""Writes a complete firmware project: sources, linker script and a readable Makefile."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from crtexport.artifact.byte_sources import Blob, blob_chunks
from crtexport.firmware import qemu
from crtexport.firmware.board_schema import Board
from crtexport.firmware.parts import FirmwareParts, TensorPart
from crtexport.support import resources
from crtexport.support.errors import CrtExportError
from crtexport.support.levels import COMPILER_OPTIONS
from crtexport.support.outputs.folders import Wanted, lay_out
from crtexport.support.outputs.single import replacing

ELF = "firmware.elf"
INPUTS = "inputs.bin"
LINK = "link.ld"
BUILD = "build"
_FIRMWARE_OBJECTS, _MODEL_OBJECTS = f"{BUILD}/firmware/", f"{BUILD}/model/"
_ALIGN = 16

# Without it, compilers turn the loops of memcpy and memset in crt_mem.c into calls of themselves.
_NO_MEM_CALLS = {"gcc": ("-fno-builtin", "-fno-tree-loop-distribute-patterns"),
                 "clang": ("-fno-builtin",)}
_MEASURING = ("crt_frame.c", "crt_frame.h", "inputs.S", "main.c.j2")
_SECTIONS = ("-ffunction-sections", "-fdata-sections")
_WARNINGS = ("-Wall", "-Wextra")


def write_project(
    parts: FirmwareParts, board: Board, folder: Path, *,
    program: Mapping[str, bytes] | None = None, count_by_timer: bool = False, force: bool = False,
) -> None:
    """Writes the project into ``folder``, which is made if it does not exist.

    Its program is ``program``, the contents of C files by name, which define ``crt_main`` and
    ``crt_fault``; by default the one that measures the models. That one's inputs come later, by
    :func:`write_inputs`. ``count_by_timer``: on Cortex-M, count by SysTick instead of leaving it to
    QEMU's plugin. Raises CrtExportError if a file can't be written, and for files in the way that
    are not ours (``force`` replaces them).
    """
    own = _measuring(parts, board) if program is None else dict(program)
    makefile = _makefile(parts, board, own, count_by_timer).encode()
    firmware = {**own, **_firmware(parts, board, measures=program is None)}
    files: dict[str, Blob] = {
        **{name if name == LINK else f"firmware/{name}": text for name, text in firmware.items()},
        **_model(parts, board), "Makefile": makefile,
    }
    made = [*_objects(parts, board, own), "build/map.txt", ELF]
    if program is None:
        made += [INPUTS, f"{BUILD}/{qemu.PLUGIN}", qemu.COUNTS, qemu.MARKS]
    wanted = Wanted(
        "firmware", {name: partial(blob_chunks, content) for name, content in files.items()},
        folders=("firmware", "model", "include"), made=made, own_folders=(BUILD,),
    )
    try:
        lay_out(folder, wanted, force=force)
    except OSError as error:
        raise CrtExportError(
            f"the project can't be written: {error.strerror}", location=str(folder)
        ) from error


def sample_layout(inputs: Sequence[TensorPart]) -> tuple[tuple[int, ...], int]:
    """Returns the offset of each input in a sample, and the size of a sample (never 0), in bytes.
    """
    offsets: list[int] = []
    at = 0
    for part in inputs:
        offsets.append(at)
        at += -(-part.nbytes // _ALIGN) * _ALIGN
    return tuple(offsets), max(at, _ALIGN)


def write_inputs(folder: Path, samples: Sequence[bytes]) -> None:
    """Writes the samples into the project's file of inputs; each has the layout of
    :func:`sample_layout`. Raises CrtExportError if the file can't be written."""
    try:
        with replacing(folder / INPUTS) as stream:
            stream.writelines(samples)
    except OSError as error:
        raise CrtExportError(
            f"the inputs can't be written: {error.strerror}", location=str(folder / INPUTS)
        ) from error


def main_context(parts: FirmwareParts) -> dict[str, object]:
    """Returns the variables of ``main.c.j2``."""
    offsets, size = sample_layout(parts.all_inputs)
    left = list(offsets)
    models = []
    for number, model in enumerate(parts.models):
        own, left = left[: len(model.inputs)], left[len(model.inputs) :]
        models.append(_model_context(model, own, f"_{number}" if parts.others else ""))
    return {
        "models": models,
        "sample_size": size,
        "spilled": [
            *dict.fromkeys(
                memory for model in parts.models for memory, size in model.spilled if size
            )
        ],
    }


def _model_context(
    model: FirmwareParts, offsets: Sequence[int], suffix: str
) -> dict[str, object]:
    """Returns the variables of ``main.c.j2`` about one model; its C names end in ``suffix``."""
    return {
        "module": model.module,
        "suffix": suffix,
        "inputs": [
            {"field": part.field, "offset": offset, "nbytes": part.nbytes}
            for part, offset in zip(model.inputs, offsets, strict=True)
        ],
        "outputs": [{"field": part.field, "nbytes": part.nbytes} for part in model.outputs],
        "state_size": model.state_size,
        "pools": _pools(model),
        "arguments": _arguments(model),
        "devices": model.devices,
        "io_in_workspace": model.io_in_workspace,
        "feed": model.feed,
        "workspace_align": max(model.workspace_align, model.image_buffer[1]),
    }


def _measuring(parts: FirmwareParts, board: Board) -> dict[str, bytes]:
    """Returns the files of the program that measures the models and answers in frames, by name."""
    templates = [f"baremetal/common/{name}" for name in _MEASURING]
    return rendered(templates, main_context(parts) | {"hosted": board.hosted})


def _firmware(parts: FirmwareParts, board: Board, *, measures: bool) -> dict[str, bytes]:
    """Returns what any program of the board needs, by file name: start-up, console, linker script.
    ``measures``: the program is the measuring one.
    """
    context = main_context(parts) | {
        "board": board.name,
        "memories": list(board.memory.items()),
        "place": board.placement,
        "stack_size": board.stack_size,
        "console": board.console,
        "description": board.description, "hosted": board.hosted, "elf": ELF,
        "openocd": _openocd(board), "needs": "" if board.flashing is None else board.flashing.needs,
        "compiler": board.toolchain.compiler[0], "runs_in": _runs_in(board),
        "measures": measures,
    }
    return rendered(_templates(board), context)


def rendered(templates: Iterable[str], context: Mapping[str, object]) -> dict[str, bytes]:
    """Returns the files that templates and plain files of their folder become, by name."""
    environment, found = resources.environment(), {}
    for template in templates:
        if template.endswith(".j2"):
            text = environment.get_template(template).render(context)
        else:
            text = (resources.templates_dir() / template).read_text(encoding="utf-8")
        found[Path(template).name.removesuffix(".j2")] = text.encode()
    return found


def _pools(parts: FirmwareParts) -> list[tuple[str, int]]:
    """Returns the memory that the firmware provides for the model: name and bytes."""
    if not parts.workspace_caller:
        return []
    pools = [
        ("workspace", parts.workspace_size),
        *((f"workspace_{memory}", size) for memory, size in parts.spilled),
        ("device_image", parts.image_buffer[0]),
        ("state", parts.state_size),
    ]
    return [(name, size) for name, size in pools if size]


def _arguments(parts: FirmwareParts) -> list[tuple[str, str]]:
    """Returns the arguments of ``run``: suffixes of the structs' names, and the firmware's
    variables."""
    io = [] if parts.io_in_workspace else [("inputs", "inputs"), ("outputs", "outputs")]
    pools = [("workspace_pools", "pools")] if _pools(parts) else []
    return [*io, *pools, *([("devices", "devices")] if parts.devices else [])]


def _templates(board: Board) -> list[str]:
    """Returns the templates of :func:`_firmware`, relative to the templates folder."""
    common = ["README.md.j2", "crt_platform.h"]
    if not board.hosted:
        common += ["crt_mem.c", f"{LINK}.j2"]
    own = resources.templates_dir() / "baremetal" / board.architecture
    return [
        *(f"baremetal/common/{name}" for name in common),
        *(f"baremetal/{board.architecture}/{path.name}" for path in sorted(own.iterdir())),
    ]


def _model(parts: FirmwareParts, board: Board) -> dict[str, Blob]:
    """Returns the model's files and the headers that these include, by name."""
    headers = {f"tvmgen_{one.module}.h": one.header for one in parts.models}
    texts = headers | dict(parts.headers) | dict(parts.sources)
    found: dict[str, Blob] = {f"model/{name}": text.encode() for name, text in texts.items()}
    found |= {f"model/{name}": content for name, content in parts.objects.items()}
    if not board.hosted:
        # They come before a C library's headers, so that all architectures use the same ones.
        own = resources.templates_dir() / "baremetal" / "include"
        found |= {f"include/{path.name}": path.read_bytes() for path in sorted(own.iterdir())}
    return found | {f"include/{name}": text for name, text in parts.runtime_headers.items()}


def _objects(parts: FirmwareParts, board: Board, program: Iterable[str]) -> Iterator[str]:
    """Returns the names of the files that are compiled; ``program`` are those of the program."""
    files = [Path(name.removesuffix(".j2")) for name in (*_templates(board), *program)]
    for stem in sorted(file.stem for file in files if file.suffix in (".c", ".S")):
        yield f"{_FIRMWARE_OBJECTS}{stem}.o"
    for name in sorted(parts.sources):
        yield f"{_MODEL_OBJECTS}{Path(name).stem}.o"


def _makefile(
    parts: FirmwareParts, board: Board, program: Iterable[str], count_by_timer: bool
) -> str:
    tools = board.toolchain
    hosted = board.hosted
    free = () if hosted else ("-ffreestanding", *_NO_MEM_CALLS[tools.kind])
    defines = (["-DCRT_HOSTED"] if hosted else []) + (
        ["-DCRT_COUNT_SYSTICK"] if count_by_timer else []
    )
    cflags = ["-std=gnu99", "-Os", *free, *_SECTIONS, *_WARNINGS, *defines]
    model_cflags = [
        "-std=c99", COMPILER_OPTIONS[parts.optimize], "-ffp-contract=off",
        *(() if hosted else ("-ffreestanding",)), *_SECTIONS,
    ]
    bare = [
        "-nostdlib", "-static", "-Wl,--gc-sections", "-Wl,-T,link.ld", "-Wl,-Map,build/map.txt",
    ]
    cpu = [*board.cpu.cflags, *tools.cflags]
    # Links only the functions of libraries that are called; hosted programs would get all of them.
    ldflags = [
        *cpu, *(bare if not hosted else ["-Wl,--gc-sections"] if parts.libraries else []),
        *tools.ldflags,
    ]
    compiled = [*_objects(parts, board, program)]
    firmware = [name for name in compiled if name.startswith(_FIRMWARE_OBJECTS)]
    objects = [name for name in compiled if name.startswith(_MODEL_OBJECTS)]
    objects += [f"model/{name}" for name in sorted(parts.objects)]
    return resources.environment().get_template("baremetal/common/Makefile.j2").render(
        elf=ELF,
        module=", ".join(model.module for model in parts.models),
        board=board.name,
        hosted=hosted,
        compiler=_words(tools.compiler),
        cpu=_words(cpu),
        cflags=_words(cflags),
        model_cflags=_words(model_cflags),
        ldflags=_words(ldflags),
        libraries=_words(tools.libraries),
        firmware_objects=_words(firmware),
        model_objects=_words(objects),
        libraries_of_others=parts.libraries,
        library_cflags=_words([*cpu, "-std=gnu99", COMPILER_OPTIONS[parts.optimize], *_SECTIONS]),
        openocd=_openocd(board),
        inputs=INPUTS if "inputs.S" in program else "",
        runs_in=_runs_in(board), run=_words(_run(board)),
        # QEMU's device by which PCs end gives twice the program's status, and 1.
        ended=1 if board.console.kind == "uart16550" else 0,
    )


def _runs_in(board: Board) -> str:
    """Returns where ``make run`` runs the program; "" where it can't."""
    return {"qemu": "QEMU", "native": "this computer"}.get(board.runner.kind, "")


def _run(board: Board) -> tuple[str, ...]:
    if board.runner.kind == "native":
        return (f"./{ELF}",)
    words = qemu.machine(board)
    return (*words, "-kernel", ELF) if words else ()


def _openocd(board: Board) -> str:
    """Returns OpenOCD's options for a board that prints by semihosting; "" for other boards."""
    files = board.flashing.openocd if board.flashing is not None else ()
    if board.console.kind != "semihosting":
        return ""
    return _words(word for file in files for word in ("-f", file))


def _words(words: Iterable[str]) -> str:
    """Returns words in a form that make and its shell read back unchanged."""
    return " ".join(shlex.quote(word).replace("$", "$$").replace("#", "\\#") for word in words)
