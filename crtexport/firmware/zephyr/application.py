"""Writes a Zephyr application around a package: it runs the model and prints a framed answer."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from crtexport.artifact.byte_sources import Blob, blob_chunks
from crtexport.firmware.architectures import rules_of
from crtexport.firmware.board_schema import Board
from crtexport.firmware.parts import FirmwareParts
from crtexport.firmware.project import BUILD, INPUTS, main_context, sample_layout, write_inputs
from crtexport.mlf.libraries import locate
from crtexport.support import resources
from crtexport.support.errors import CrtExportError
from crtexport.support.outputs.folders import Wanted, lay_out

SOURCES = "src"
_COPIED = (
    "baremetal/common/crt_frame.c", "baremetal/common/crt_frame.h",
    "baremetal/common/crt_platform.h", "zephyr/platform.c", "zephyr/inputs.S",
)


def write_application(
    parts: FirmwareParts, board: Board, package: Path, folder: Path, *, force: bool = False
) -> None:
    """Writes the application for ``package`` into ``folder``, with zeros as inputs.

    Only files that change are written, so that a build in ``folder`` stays usable. Raises
    CrtExportError for a model with devices, if a file can't be written, for files in the way that
    are not ours (``force`` replaces them), or if a path has characters that CMake can't quote.
    """
    if any(model.devices for model in parts.models):
        raise CrtExportError(
            "an application for a model with devices needs their hooks, which only you can write",
            location=str(package),
            hint="write the application; the documentation of the C interface has the hooks",
        )
    locate(parts.libraries, archives=False)
    module_dir = str(resources.zephyr_dir())
    if set(module_dir) & set('"\\$;'):
        raise CrtExportError("CMake can't name this folder", location=module_dir,
                             hint="install crtexport into a folder of plain characters")
    templates, environment = resources.templates_dir(), resources.environment()
    context = {
        **main_context(parts), "module": parts.module, "module_dir": module_dir,
        "settings": _settings(board),
        "stack_size": max(board.stack_size, 4096), "libraries": parts.libraries,
    }
    texts = {
        f"{SOURCES}/main.c": environment.get_template("baremetal/common/main.c.j2").render(context),
        "Kconfig": (templates / "zephyr" / "Kconfig").read_text(encoding="utf-8"),
    }
    for name in ("CMakeLists.txt", "prj.conf"):
        texts[name] = environment.get_template(f"zephyr/{name}.j2").render(context)
    for name in _COPIED:
        texts[f"{SOURCES}/{Path(name).name}"] = (templates / name).read_text(encoding="utf-8")
    blobs: dict[str, Blob] = {name: text.encode() for name, text in texts.items()}
    blobs["model.tar"] = package
    wanted = Wanted(
        "application", {name: partial(blob_chunks, blob) for name, blob in blobs.items()},
        made=(f"{SOURCES}/{INPUTS}",), own_folders=(BUILD,),
    )
    try:
        lay_out(folder, wanted, force=force)
    except OSError as error:
        raise CrtExportError(
            f"the application can't be written: {error.strerror}", location=str(folder)
        ) from error
    write_inputs(folder / SOURCES, [bytes(sample_layout(parts.all_inputs)[1])])


def _settings(board: Board) -> list[str]:
    """Returns the settings of the processor and of QEMU that the board's code needs."""
    found = []
    # Zephyr leaves the FPU off by default; it includes the vectors of Armv8.1-M.
    if board.cpu.float_abi == "hard" or rules_of(board.architecture).fpu:
        found.append("CONFIG_FPU=y")
    if board.runner.kind == "qemu":
        # One instruction takes one nanosecond, so that a clock counts instructions.
        found.append("CONFIG_QEMU_ICOUNT_SHIFT=0")
    return found
