"""The states of models on their way into a package, and the result of an export."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from crtexport.accelerators import Decision
from crtexport.artifact.common import package_constants, package_workspaces
from crtexport.artifact.model import Artifact
from crtexport.firmware.board_schema import Board
from crtexport.firmware.budget import Usage
from crtexport.ir.graph import Graph
from crtexport.lowering.lowered_graph import LoweredGraph
from crtexport.passes.channels import LayerChannels
from crtexport.pipeline.options import Emit, Io
from crtexport.pipeline.summary.records import NetworkSummary
from crtexport.plan.model import Plan
from crtexport.support.errors import CrtExportError
from crtexport.support.short import line, sizes, table

_LONGEST_NAME = 200
_OTHER_FORMATS = frozenset({
    ".zip", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z",  # archives, and tar files compressed
    ".tflite", ".json", ".onnx", ".safetensors", ".npz",  # what is read
    ".c", ".h", ".o", ".a", ".elf", ".bin", ".hex",  # what firmware is made of
})


class Prepared(Struct, frozen=True):
    """A model on its way: simplified, planned and lowered for a board.

    ``channels``: what became of layers, where channels were removed; ``decisions``: what
    accelerators did with those that they looked at. ``whole``: the bytes of workspace with one
    whole tensor after another, where layers run row by row to make it smaller.
    """

    lowered: LoweredGraph
    plan: Plan
    artifact: Artifact
    channels: tuple[LayerChannels, ...] = ()
    decisions: tuple[Decision, ...] = ()
    whole: int | None = None

    def __repr__(self) -> str:
        return line("Prepared", f"{self.artifact.module}:", sizes(_sizes((self.artifact,))))

    def _repr_html_(self) -> str:
        from crtexport.plan import svg  # noqa: PLC0415  (for pictures only)

        return svg.draw(self.graph, self.plan)

    @property
    def graph(self) -> Graph:
        """Returns the graph that was lowered."""
        return self.lowered.graph


class Exported(Struct, frozen=True):
    """The result of an export: the package's path, and the models in it, in their order; ``read``
    are their networks as imported, and ``summaries`` what the package says of them (None where
    calls can't be matched with layers). ``usage`` is what all of them take of the board ``target``;
    of C sources without their code."""

    path: Path
    board: str
    emit: Emit
    models: tuple[Prepared, ...]
    read: tuple[Graph, ...] = ()
    summaries: tuple[NetworkSummary | None, ...] = ()
    usage: Usage = Usage()
    target: Board | None = None

    def __repr__(self) -> str:
        names = "+".join(model.artifact.module for model in self.models)
        return line("Exported", names, f"for {self.board} to {self.path.name}:", sizes(self.sizes))

    def _repr_html_(self) -> str:
        rows = [("board", self.board), ("code", self.emit), *self.sizes.items()]
        pictures = "".join(model._repr_html_() for model in self.models)
        return table(self.path.name, rows, ("", "bytes")) + pictures

    @property
    def artifact(self) -> Artifact:
        """Returns the artifact of the one model. Raises CrtExportError where there are several."""
        return self._only.artifact

    @property
    def graph(self) -> Graph:
        """As :attr:`artifact`."""
        return self._only.graph

    @property
    def lowered(self) -> LoweredGraph:
        """As :attr:`artifact`."""
        return self._only.lowered

    @property
    def plan(self) -> Plan:
        """As :attr:`artifact`."""
        return self._only.plan

    @property
    def channels(self) -> tuple[LayerChannels, ...]:
        """As :attr:`artifact`."""
        return self._only.channels

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """As :attr:`artifact`."""
        return self._only.decisions

    @property
    def _only(self) -> Prepared:
        if len(self.models) != 1:
            names = ", ".join(model.artifact.module for model in self.models)
            raise CrtExportError(
                f"this asks for the one model of a package, which has {names}",
                location=str(self.path), hint="Exported.models has all of them",
            )
        return self.models[0]

    @property
    def sizes(self) -> dict[str, int]:
        """Returns the bytes of all models: constants in flash, workspace, inputs and outputs, and
        the buffers for compressed device programs, if there are any."""
        return _sizes([model.artifact for model in self.models])


def _sizes(artifacts: Sequence[Artifact]) -> dict[str, int]:
    inflated = sum(a.inflated_size for a in artifacts)
    return {
        "constants": package_constants(artifacts),
        "workspace": (
            sum(package_workspaces(artifacts).values()) if artifacts[0].common.workspace
            else sum(a.workspace_total for a in artifacts)
        ),
        "state": sum(a.state_size for a in artifacts),
        "inputs": sum(i.type.nbytes for a in artifacts for i in a.inputs),
        "outputs": sum(o.type.nbytes for a in artifacts for o in a.outputs),
        **({"device programs": inflated} if inflated else {}),
    }


def usage_of(artifacts: Sequence[Artifact], code: int, const_inputs: bool = False) -> Usage:
    """Returns the memory of a board that models with ``code`` bytes of code take together."""
    handed = [artifact for artifact in artifacts if not artifact.io_in_workspace]
    inputs = sum(i.type.nbytes for a in handed if a.feed is None for i in a.inputs)
    owning = [artifact for artifact in artifacts if not artifact.workspace_caller]
    spaces = package_workspaces(artifacts)
    usage = Usage(
        code=code, constants=package_constants(artifacts),
        spilled=tuple((end.removeprefix("_"), size) for end, size in spaces.items() if end),
        workspace=spaces.get("", 0) + sum(a.state_size + a.inflated_size for a in owning),
        io=inputs + sum(o.type.nbytes for a in handed for o in a.outputs), inputs=inputs,
    )
    return usage.with_const_inputs() if const_inputs else usage


def usage_beside(
    graphs: Sequence[Graph], io: Io, const_inputs: bool = False, feed: bool = False
) -> Usage:
    """Returns the memory that networks take together beside their workspaces; inputs that are given
    row by row (``feed``) take none."""
    kept = sum(g.type(t).nbytes for g in graphs for t in g.variables)
    if io == "workspace":
        return Usage(workspace=kept)
    inputs = 0 if feed else sum(g.type(t).nbytes for g in graphs for t in g.inputs)
    outputs = sum(g.type(t).nbytes for g in graphs for t in g.outputs)
    usage = Usage(workspace=kept, io=inputs + outputs, inputs=inputs)
    return usage.with_const_inputs() if const_inputs else usage


def check_name(path: Path) -> None:
    """Raises CrtExportError where a package that is called so would pass for another format."""
    ending = path.suffix.lower()
    if ending in _OTHER_FORMATS:
        stem = path.stem.removesuffix(".tar")
        raise CrtExportError(
            f"a package is an uncompressed tar file; one with the ending {ending} would pass for"
            " something else", location=str(path), hint=f"call it {path.with_name(stem)}.tar",
        )


def default_name(artifacts: Sequence[Artifact], board: str) -> str:
    """Returns the default name of a package of models for ``board``. Raises CrtExportError where
    that is too long."""
    name = f"{'-'.join(artifact.module for artifact in artifacts)}-{board}.tar"
    if len(name) > _LONGEST_NAME:
        raise CrtExportError(
            "the names of all models together are too long for a file's name", location=name,
            hint="name the package with -o",
        )
    return name
