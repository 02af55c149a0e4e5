"""What a file keeps between runs: resource variables and the subgraph that initialises them.

VAR_HANDLE names a variable, READ_VARIABLE and ASSIGN_VARIABLE use it, CALL_ONCE runs a subgraph
before everything else in the first run. Here the variable becomes a tensor, its handle disappears,
and what that subgraph assigns becomes the initial value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import tflite
from tflite import BuiltinOperator

from crtexport.errors import CrtExportError
from crtexport.importers.tflite.flatbuffer import Reader
from crtexport.importers.tflite.tensors import TensorTable
from crtexport.ir.graph import Tensor, Variable

_CONTAINER, _SHARED_NAME = 4, 6  # slots of VarHandleOptions

STEERING = frozenset({BuiltinOperator.VAR_HANDLE, BuiltinOperator.CALL_ONCE})
"""Operators that leave no node behind."""

Key = tuple[str, str]
"""Container and shared name: what tells variables apart."""


@dataclass(frozen=True)
class Subgraph:
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


@dataclass(frozen=True)
class _Use:
    where: str
    table: Any
    code: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def resolve(
    reader: Reader, main: Subgraph, load: Callable[[int], Subgraph]
) -> dict[int, int]:
    """Defines a tensor for each variable in ``main``, in the place of one of its handles.

    Returns, for every handle, the tensor that it stands for. ``load`` gives other subgraphs.
    """
    if not any(code == BuiltinOperator.VAR_HANDLE for code, _ in main.codes):
        return {}
    handles = _handles(reader, main)
    initial = _initial_values(reader, main, load)
    types = _first_uses(reader, main, handles)
    first: dict[Key, int] = {}
    for handle, key in handles.items():
        if key in first:
            continue
        first[key] = handle
        value = initial.get(key)
        used = types.get(key)
        if used is None:
            continue  # nobody reads or writes it
        start = None if value is None else value.constant
        if value is not None and (value.type.dtype, value.type.shape) != (
            used.type.dtype, used.type.shape
        ):
            raise CrtExportError(
                f"the variable is used as {used.type}, its initial value is {value.type}",
                location=f"variable {key[1]!r}",
            )
        main.tensors.define(handle, Tensor(key[1], used.type, variable=Variable(start)))
    return {handle: first[key] for handle, key in handles.items()}


def _handles(reader: Reader, subgraph: Subgraph) -> dict[int, Key]:
    found: dict[int, Key] = {}
    for use in subgraph.uses(reader):
        if use.code != BuiltinOperator.VAR_HANDLE or len(use.outputs) != 1:
            continue
        options = _options(
            reader, use, tflite.VarHandleOptions, tflite.BuiltinOptions.VarHandleOptions
        )
        found[use.outputs[0]] = (
            reader.text(options, _CONTAINER), reader.text(options, _SHARED_NAME)
        )
    return found


def _options(reader: Reader, use: _Use, kind: Callable[[], Any], code: int) -> Any:
    union = reader.get(use.table.BuiltinOptions)
    if reader.get(use.table.BuiltinOptionsType) != code or union is None:
        raise CrtExportError("the operator lacks its options", location=use.where)
    options = kind()
    reader.get(options.Init, union.Bytes, union.Pos)
    return options


def _first_uses(
    reader: Reader, subgraph: Subgraph, handles: dict[int, Key]
) -> dict[Key, Tensor]:
    """For each variable, a tensor of its type."""
    found: dict[Key, Tensor] = {}
    for use in subgraph.uses(reader):
        if use.code == BuiltinOperator.READ_VARIABLE:
            values = use.outputs[:1]
        elif use.code == BuiltinOperator.ASSIGN_VARIABLE:
            values = use.inputs[1:2]
        else:
            continue
        key = handles.get(use.inputs[0]) if use.inputs else None
        if key is None or not values:
            raise CrtExportError(
                "the variable isn't named by a VAR_HANDLE of the same subgraph",
                location=use.where,
            )
        if key not in found:
            found[key] = subgraph.tensors.tensor(values[0])
    return found


def _initial_values(
    reader: Reader, main: Subgraph, load: Callable[[int], Subgraph]
) -> dict[Key, Tensor]:
    """What the subgraphs behind CALL_ONCE assign: constants, as converters write them."""
    found: dict[Key, Tensor] = {}
    for call in main.uses(reader):
        if call.code != BuiltinOperator.CALL_ONCE:
            continue
        options = _options(
            reader, call, tflite.CallOnceOptions, tflite.BuiltinOptions.CallOnceOptions
        )
        number = reader.get(options.InitSubgraphIndex)
        subgraph = load(number)
        handles = _handles(reader, subgraph)
        for use in subgraph.uses(reader):
            if use.code == BuiltinOperator.VAR_HANDLE:
                continue
            where = (call.where, f"subgraph {number}", use.where)
            if use.code != BuiltinOperator.ASSIGN_VARIABLE:
                raise CrtExportError(
                    "variables are initialised with more than constants", location=where
                )
            if len(use.inputs) != 2 or use.inputs[0] not in handles:
                raise CrtExportError("this assigns to no variable", location=where)
            value = subgraph.tensors.tensor(use.inputs[1])
            if value.constant is None:
                raise CrtExportError(
                    f"the initial value {value.name!r} is no constant", location=where
                )
            found[handles[use.inputs[0]]] = value
    return found
