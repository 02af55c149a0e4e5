"""The options of an export, as one record that goes from the verbs down to the last stage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict

from msgspec import Struct

from crtexport.backends.constants import LargeData
from crtexport.backends.modules import Split
from crtexport.importers.formats import NO_CHOICES, InputChoices
from crtexport.support.levels import Level

Emit = Literal["c", "llvm"]
Optimize = Literal["size", "compact", "balanced", "speed", "ram"]
"""Goals of an export. With "ram", networks run row by row where that takes less memory; the code of
kernels is balanced."""
Io = Literal["caller", "workspace"]
Owner = Literal["static", "shared", "caller"]
"""The owner of the workspace: each model, all models of a package together, or the caller."""
Weights = Literal["auto", "packed", "unpacked"]
Pools = Sequence[tuple[str, int]]
"""Memories for the workspace, fastest first, and how many bytes it may take of each."""


class ExportOptions(Struct, frozen=True, kw_only=True):
    """The options of an export.

    - ``emit``: "llvm" (objects) or "c" (sources). None: the board's default.
    - ``optimize``: "size", "compact", "balanced", "speed", or "ram" (layers are computed row by row
      if that saves memory; with "compact" and "balanced" if it costs hardly anything). None: the
      board's default.
    - ``ram``: the largest workspace of each model, in bytes. Layers are computed row by row until
      the workspace fits.
    - ``workspace``: who owns the memory for intermediate results: "static" (each model), "shared"
      (all models of the package together), or "caller".
    - ``io``: inputs and outputs are in buffers of the "caller", or in the "workspace".
    - ``feed``: the input's rows are given one after the other (``_begin``, ``_feed``, ``_finish``).
    - ``stream``: as ``feed``, and after the first result each further one needs the new rows only:
      what layers computed of earlier rows stays in memory.
    - ``const_inputs``: inputs are read from flash and take no RAM.
    - ``pools``: memories of the board for the workspace, with their sizes, instead of its default.
    - ``large_data``: whether constants may be far from the code (x86-64). "auto": if they are
      larger than the board's threshold.
    - ``numerics``: whose integer results are computed: "tflite", "litert", "tflm" or "ort".
    - ``module_name``: names for the models, one for each. None: their own names.
    - ``system_lib``: whether the package has a function registry.
    - ``split``: which kernels have objects of their own: "none", "operator" or "auto".
    - ``llvm_options``: options for LLVM in addition to the board's.
    - ``llvm_timeout``: the longest time for one object, in seconds.
    - ``keep_failed``: a folder for the input of LLVM if it fails.
    - ``jobs``: the number of objects that are compiled at the same time.
    - ``accelerators``: plugins that may compute layers, instead of those of the board.
    - ``device_bundle``: also write device programs as bundles for clang-offload-bundler.
    - ``tuning``: a file of measurements that select kernels.
    - ``choices``: what an ONNX file leaves open about its inputs.
    - ``weights``: whether weights that fit 4 or 2 bits stay "packed" in flash. "auto": where
      unpacking takes almost no instructions.
    """

    emit: Emit | None = None
    optimize: Optimize | None = None
    ram: int | None = None
    workspace: Owner = "static"
    io: Io = "caller"
    feed: bool = False
    stream: bool = False
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
        """Returns the names of all models; None where the models have their own."""
        return [self.module_name] if isinstance(self.module_name, str) else self.module_name


class ExportChanges(TypedDict, total=False):
    """The fields of :class:`ExportOptions`, as keyword arguments of the public verbs."""

    emit: Emit | None
    optimize: Optimize | None
    ram: int | None
    workspace: Owner
    io: Io
    feed: bool
    stream: bool
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
