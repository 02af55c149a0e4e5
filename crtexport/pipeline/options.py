"""The options of an export, as one record that goes from the verbs down to the last stage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict

from msgspec import Struct

from crtexport.backends.constants import LargeData
from crtexport.backends.modules import Split
from crtexport.importers.formats import NO_CHOICES, InputChoices

Emit = Literal["c", "llvm"]
Level = Literal["size", "balanced", "speed"]
"""Goals of the code of kernels."""
Optimize = Literal["size", "balanced", "speed", "ram"]
"""Goals of an export. With "ram", networks run row by row where that takes less memory; the code of
kernels is balanced."""
Io = Literal["caller", "workspace"]
Owner = Literal["static", "shared", "caller"]
"""The owner of the workspace: each model, all models of a package together, or the caller."""
Weights = Literal["auto", "packed", "unpacked"]
Pools = Sequence[tuple[str, int]]
"""Memories for the workspace, fastest first, and how many bytes it may take of each."""


class ExportOptions(Struct, frozen=True, kw_only=True):
    """The choices of an export.

    ``emit`` and ``optimize`` are the board's where they are None. ``ram``: bytes that the workspace
    of each model may take: where one whole tensor after another takes more, stretches of the
    network run row by row, as few as will do. ``feed``: the rows of the
    input are given one after the other. ``const_inputs``: inputs stay in
    flash, and are counted there. ``pools``: memories for the workspace instead of the board's
    choice. ``large_data``: whether constants may be any distance from code; "auto" is the board's
    choice. ``module_name``: one for each model; none: the models' own. Without ``system_lib`` there
    is no function registry. For objects, ``split`` selects the kernels with an object of their own
    (none, operator, auto); ``llvm_options`` are LLVM's own, beside the board's; ``llvm_timeout`` is
    in seconds for one object, ``jobs`` the number of objects compiled at once, ``keep_failed`` the
    folder for the text of modules on which LLVM fails. ``accelerators`` may take nodes, instead of
    those of the board. ``device_bundle`` adds bundles of device programs for clang-offload-bundler.
    ``tuning`` is a file of measurements that select the variants of kernels. ``choices`` fix the
    inputs of an ONNX file. ``weights`` of convolutions and fully connected layers whose values fit
    4 or 2 bits stay packed in flash, or have a byte each; "auto": packed where unpacking them takes
    hardly an instruction more.
    """

    emit: Emit | None = None
    optimize: Optimize | None = None
    ram: int | None = None
    workspace: Owner = "static"
    io: Io = "caller"
    feed: bool = False
    const_inputs: bool = False
    pools: Pools = ()
    large_data: LargeData = "auto"
    numerics: str | None = None
    module_name: str | Sequence[str] | None = None
    system_lib: bool = True
    split: Split | None = None
    llvm_options: Sequence[str] = ()
    llvm_timeout: float | None = None
    keep_failed: Path | str | None = None
    jobs: int | None = None
    accelerators: Sequence[str] | None = None
    device_bundle: bool = False
    tuning: Path | str | None = None
    choices: InputChoices = NO_CHOICES
    weights: Weights = "auto"

    def level(self, board: Level) -> Level:
        """Returns the goal for the code of kernels on a board that has ``board`` by default."""
        return "balanced" if self.optimize == "ram" else self.optimize or board

    @property
    def module_names(self) -> Sequence[str] | None:
        """The names of all models; None where the models have their own."""
        return [self.module_name] if isinstance(self.module_name, str) else self.module_name


class ExportChanges(TypedDict, total=False):
    """The fields of :class:`ExportOptions`, as keyword arguments of the public verbs."""

    emit: Emit | None
    optimize: Optimize | None
    ram: int | None
    workspace: Owner
    io: Io
    feed: bool
    const_inputs: bool
    pools: Pools
    large_data: LargeData
    numerics: str | None
    module_name: str | Sequence[str] | None
    system_lib: bool
    split: Split | None
    llvm_options: Sequence[str]
    llvm_timeout: float | None
    keep_failed: Path | str | None
    jobs: int | None
    accelerators: Sequence[str] | None
    device_bundle: bool
    tuning: Path | str | None
    choices: InputChoices
    weights: Weights


DEFAULTS = ExportOptions()
