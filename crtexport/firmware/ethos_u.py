"""Models for an Ethos-U: compiles them with Vela, checks that they fit the board's Ethos-U, and
places their workspace in memories that it reaches."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from crtexport.firmware import vela
from crtexport.firmware.board_rules import ETHOS_U
from crtexport.firmware.board_schema import Board
from crtexport.importers import load
from crtexport.importers.files import sha256
from crtexport.importers.formats import NO_CHOICES, TFLITE, InputChoices, format_of
from crtexport.ir.graph import Graph, Tensor
from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import EthosU
from crtexport.ir.types import ConstantRef
from crtexport.support.errors import CrtExportError

_FAMILY = "ethos-u"
"""Prefix of accelerator names that select Vela. The prefix alone means the board's Ethos-U."""


def plugins(accelerators: Sequence[str]) -> tuple[str, ...]:
    """Returns the accelerators that aren't Ethos-Us, which are plugins."""
    return tuple(name for name in accelerators if not name.startswith(_FAMILY))


def asked(accelerators: Sequence[str] | None, board: Board) -> str | None:
    """Returns the Ethos-U that ``accelerators`` name, as Vela calls it; None if they name none.

    Raises CrtExportError for more than one, for one that doesn't exist, and for that of a board
    without one.
    """
    names = [name for name in accelerators or () if name.startswith(_FAMILY)]
    if not names:
        return None
    if len(set(names)) > 1:
        raise CrtExportError(f"a model is for one Ethos-U, not for {' and '.join(names)}")
    if names[0] != _FAMILY:
        if names[0] not in ETHOS_U:
            raise CrtExportError(
                "there is no such Ethos-U", location=names[0],
                hint=f"there are {', '.join(ETHOS_U)}, and {_FAMILY}: the board's",
            )
        return names[0]
    if board.npu is None:
        raise CrtExportError(
            "the board has no Ethos-U", location=board.name,
            hint=f"say which it is: --accelerator {ETHOS_U[2]}",
        )
    return board.npu.accelerator


def load_for(
    path: Path, numerics: Numerics | None, accelerators: Sequence[str] | None,
    board: Callable[[], Board], *, allow_outside: bool = False, choices: InputChoices = NO_CHOICES,
) -> Graph:
    """Returns the network in a file, compiled by Vela where ``accelerators`` name an Ethos-U."""
    chosen = board() if any(name.startswith(_FAMILY) for name in accelerators or ()) else None
    wanted = asked(accelerators, chosen) if chosen else None
    if chosen is None or wanted is None:
        return load(path, numerics=numerics, allow_outside=allow_outside, choices=choices)
    return load_compiled(path, numerics, wanted, chosen)


def load_compiled(path: Path, numerics: Numerics | None, accelerator: str, board: Board) -> Graph:
    """Returns the network in a .tflite file after Vela compiled it, unless it already has.

    If the board has this Ethos-U, Vela gets the board's memory configuration. Constants of the
    returned graph are in memory; its name and checksum are those of the original file. Raises
    CrtExportError for a model of which no operator runs on the Ethos-U.
    """
    from crtexport.importers.tflite import has_commands  # noqa: PLC0415

    if format_of(path) is not TFLITE:
        raise CrtExportError(
            "Vela compiles .tflite files, which this is not", location=path.name,
            hint=f"leave out --accelerator {accelerator}",
        )
    if has_commands(path):
        return load(path, numerics=numerics)
    npu = board.npu if board.npu is not None and board.npu.accelerator == accelerator else None
    with tempfile.TemporaryDirectory(prefix="crtexport-") as folder:
        made = vela.compile_model(
            path, accelerator, Path(folder),
            system_config=npu.system_config if npu else "",
            memory_mode=npu.memory_mode if npu else "",
        )
        try:
            graph = _held(load(made, numerics=numerics))
        except CrtExportError as error:
            raise error.within(path.name) from error.__cause__
    if not commands_of((graph,)):
        raise CrtExportError(
            f"Vela finds nothing in the model that an {accelerator} can run", location=path.name,
            hint="an Ethos-U runs integers: quantize the model to int8" if _floats(graph) else None,
        )
    return replace(graph.from_file(path.name, sha256(path), numerics), name=path.stem)


def commands_of(graphs: Sequence[Graph]) -> list[EthosU]:
    """Returns the operators of networks that an Ethos-U runs."""
    return [
        node.op for outer in graphs for graph in outer.nested() for node in graph.nodes
        if isinstance(node.op, EthosU)
    ]


def for_networks(
    board: Board, graphs: Sequence[Graph], accelerators: Sequence[str] | None, *, fixed: bool
) -> Board:
    """Returns ``board``, changed so that the workspace of ``graphs`` is in memories that its
    Ethos-U reaches.

    ``fixed``: the user chose the memories, so they aren't changed. Raises CrtExportError for
    commands of another Ethos-U than the user or the board names, for graphs without commands if the
    user named one, and for chosen memories that the Ethos-U doesn't reach.
    """
    made_for = sorted({op.accelerator for op in commands_of(graphs)})
    requested = asked(accelerators, board)
    if not made_for:
        if requested is not None:
            raise CrtExportError(
                "the network has no commands for an Ethos-U", location=graphs[0].source,
                hint="give the .tflite file, which Vela can compile",
            )
        return board
    if requested is None and board.npu is None:
        raise CrtExportError(
            f"the model has commands for an {made_for[0]}, but the board has no Ethos-U",
            location=board.name,
            hint=f"if yours has, describe it in the board's file (npu:), or say --accelerator "
            f"{made_for[0]}",
        )
    there = requested or (board.npu.accelerator if board.npu else "")
    if made_for != [there]:
        raise CrtExportError(
            f"the model has commands for an {' and an '.join(made_for)}, not for an {there}",
            location=board.name,
            hint=f"export the original file, from before Vela, with --accelerator {there}",
        )
    return _reached(board, fixed=fixed)


def _reached(board: Board, *, fixed: bool) -> Board:
    npu, place = board.npu, board.placement
    if npu is None or not npu.memories:
        return board
    there = tuple(name for name in place.workspaces if name in npu.memories)
    if fixed and there != place.workspaces:
        strange = next(name for name in place.workspaces if name not in npu.memories)
        raise CrtExportError(
            f"the Ethos-U doesn't reach the memory {strange!r}", location=board.name,
            hint=f"it reaches {', '.join(npu.memories)}",
        )
    return replace(board, placement=replace(place, workspace=there[0], spill=there[1:]))


def _floats(graph: Graph) -> bool:
    return any(graph.type(tensor).dtype.is_float for tensor in graph.inputs)


def _held(graph: Graph) -> Graph:
    """Returns the graph with all constants read into memory, since their file will be deleted."""
    nodes = tuple(
        replace(node, graphs=tuple(map(_held, node.graphs))) if node.graphs else node
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes, tensors=tuple(map(_held_tensor, graph.tensors)))


def _held_tensor(tensor: Tensor) -> Tensor:
    constant = tensor.constant
    if constant is None or constant.data is not None:
        return tensor
    return replace(tensor, constant=ConstantRef(constant.nbytes, constant.read()))
