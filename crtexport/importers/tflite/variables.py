"""What a file keeps between runs: resource variables and the subgraph that initialises them.

VAR_HANDLE names a variable, READ_VARIABLE and ASSIGN_VARIABLE use it, CALL_ONCE runs a subgraph
before everything else in the first run. The variable becomes a tensor of the network, its handles
disappear, and what that subgraph assigns becomes the initial value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from crtexport.errors import CrtExportError
from crtexport.importers.tflite import schema
from crtexport.importers.tflite.flatbuffer import Reader
from crtexport.importers.tflite.schema import BuiltinOperator
from crtexport.importers.tflite.tensors import TensorTable
from crtexport.ir.graph import Tensor

_CONTAINER, _SHARED_NAME = 4, 6  # slots of VarHandleOptions

STEERING = frozenset({BuiltinOperator.VAR_HANDLE, BuiltinOperator.CALL_ONCE})
"""Operators that leave no node behind."""

Key = tuple[str, str] | tuple[int, int]
"""What tells variables apart: container and shared name, or subgraph and tensor."""


class Subgraph(Struct, frozen=True):
    """A subgraph of the file: its table, tensors, operators, and their codes with their names."""

    table: Any
    tensors: TensorTable
    operators: tuple[Any, ...]
    codes: tuple[tuple[int, str], ...]

    def uses(self, reader: Reader) -> Iterator[_Use]:
        """Every operator with its tensors."""
        for index, (table, (code, name)) in enumerate(
            zip(self.operators, self.codes, strict=True)
        ):
            inputs = reader.numbers(table.InputsLength, table.InputsAsNumpy, 4)
            outputs = reader.numbers(table.OutputsLength, table.OutputsAsNumpy, 4)
            yield _Use(f"operator {index} ({name})", table, code, inputs, outputs)


class _Use(Struct, frozen=True):
    where: str
    table: Any
    code: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def handles(reader: Reader, subgraph: Subgraph) -> dict[int, Key]:
    """The variables that its VAR_HANDLEs name, by the tensors that stand for them."""
    found: dict[int, Key] = {}
    for use in subgraph.uses(reader):
        if use.code != BuiltinOperator.VAR_HANDLE or len(use.outputs) != 1:
            continue
        options = _options(reader, use, "VarHandleOptions")
        found[use.outputs[0]] = (
            reader.text(options, _CONTAINER), reader.text(options, _SHARED_NAME)
        )
    return found


def _options(reader: Reader, use: _Use, table: str) -> Any:
    union = reader.get(use.table.BuiltinOptions)
    if reader.get(use.table.BuiltinOptionsType) != schema.options_code(table) or union is None:
        raise CrtExportError("the operator lacks its options", location=use.where)
    options = schema.table(table)
    reader.get(options.Init, union.Bytes, union.Pos)
    return options


def initial_values(
    reader: Reader, main: Subgraph, load: Callable[[int], Subgraph]
) -> dict[Key, Tensor]:
    """What the subgraphs behind CALL_ONCE assign: constants, as converters write them."""
    found: dict[Key, Tensor] = {}
    for call in main.uses(reader):
        if call.code != BuiltinOperator.CALL_ONCE:
            continue
        options = _options(reader, call, "CallOnceOptions")
        number = reader.get(options.InitSubgraphIndex)
        subgraph = load(number)
        known = handles(reader, subgraph)
        for use in subgraph.uses(reader):
            if use.code == BuiltinOperator.VAR_HANDLE:
                continue
            where = (call.where, f"subgraph {number}", use.where)
            if use.code != BuiltinOperator.ASSIGN_VARIABLE:
                raise CrtExportError(
                    "variables are initialised with more than constants", location=where
                )
            if len(use.inputs) != 2 or use.inputs[0] not in known:
                raise CrtExportError("this assigns to no variable", location=where)
            value = subgraph.tensors.tensor(use.inputs[1])
            if value.constant is None:
                raise CrtExportError(
                    f"the initial value {value.name!r} is no constant", location=where
                )
            found[known[use.inputs[0]]] = value
    return found
