"""Resource variables of a file, and the subgraph that initialises them.

VAR_HANDLE names a variable, READ_VARIABLE and ASSIGN_VARIABLE use it, CALL_ONCE runs a subgraph
before everything else in the first run. The variable becomes a tensor of the network, its handles
disappear, and the values that the subgraph assigns become initial values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from msgspec import Struct

from crtexport.importers.tflite import schema
from crtexport.importers.tflite.flatbuffer import Table
from crtexport.importers.tflite.folded import dequantized
from crtexport.importers.tflite.schema import BuiltinOperator
from crtexport.importers.tflite.tensors import TensorTable
from crtexport.ir.graph import Tensor
from crtexport.support.errors import CrtExportError

K = TypeVar("K", bound=Table)

STEERING = frozenset({BuiltinOperator.VAR_HANDLE, BuiltinOperator.CALL_ONCE})
"""Operators that leave no node behind."""

Key = tuple[str, str] | tuple[int, int]
"""Identifies a variable: container and shared name, or subgraph and tensor."""


class Subgraph(Struct, frozen=True):
    """A subgraph of the file: its table, tensors, operators, and their codes with their names."""

    table: schema.SubGraph
    tensors: TensorTable
    operators: tuple[schema.Operator, ...]
    codes: tuple[tuple[int, str], ...]

    def uses(self, operator_code: int | None = None) -> Iterator[_Use]:
        """Yields every operator, or those of one code, with their tensors."""
        for index, (table, (code, name)) in enumerate(
            zip(self.operators, self.codes, strict=True)
        ):
            if operator_code in (None, code):
                where = f"operator {index} ({name})"
                yield _Use(where, table, code, table.inputs, table.outputs)


class _Use(Struct, frozen=True):
    where: str
    table: schema.Operator
    code: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def handles(subgraph: Subgraph) -> dict[int, Key]:
    """Returns the variables that its VAR_HANDLEs name, by the tensors that stand for them."""
    found: dict[int, Key] = {}
    for use in subgraph.uses(BuiltinOperator.VAR_HANDLE):
        if len(use.outputs) == 1:
            options = _options(use, schema.VarHandleOptions)
            found[use.outputs[0]] = (options.container, options.shared_name)
    return found


def _options(use: _Use, kind: type[K]) -> K:
    union = use.table.builtin_options
    if use.table.builtin_options_type != kind.UNION or not union:
        raise CrtExportError("the operator lacks its options", location=use.where)
    return union.read(kind)


def initial_values(main: Subgraph, load: Callable[[int], Subgraph]) -> dict[Key, Tensor]:
    """Returns the values that the subgraphs behind CALL_ONCE assign: constants, as converters write
    them."""
    initial: dict[Key, Tensor] = {}
    for call in main.uses(BuiltinOperator.CALL_ONCE):
        number = _options(call, schema.CallOnceOptions).init_subgraph_index
        subgraph = load(number)
        variables = handles(subgraph)
        for use in subgraph.uses():
            if use.code == BuiltinOperator.VAR_HANDLE:
                continue
            where = (call.where, f"subgraph {number}", use.where)
            if use.code == BuiltinOperator.DEQUANTIZE and len(use.outputs) == 1:
                _dequantize(subgraph.tensors, use)
                continue
            if use.code != BuiltinOperator.ASSIGN_VARIABLE:
                raise CrtExportError(
                    "variables are initialised with more than constants", location=where
                )
            if len(use.inputs) != 2 or use.inputs[0] not in variables:
                raise CrtExportError("this assigns to no variable", location=where)
            value = subgraph.tensors.tensor(use.inputs[1])
            if value.constant is None:
                raise CrtExportError(
                    f"the initial value {value.name!r} is no constant", location=where
                )
            initial[variables[use.inputs[0]]] = value
    return initial


def _dequantize(tensors: TensorTable, use: _Use) -> None:
    """Makes a constant of the result of a DEQUANTIZE of one, as of weights stored in float16."""
    (result,) = use.outputs
    found = dequantized(tensors.tensor(use.inputs[0]), tensors.tensor(result))
    if found is not None:
        tensors.define(result, found)
