"""Inputs and outputs of an ONNX graph: static shapes, values given by the user, layout."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from crtexport.importers.formats import InputChoices
from crtexport.importers.onnx.builder import Builder
from crtexport.importers.onnx.constants import bits_of, element_type
from crtexport.importers.onnx.domains import domain_of
from crtexport.importers.onnx.messages import GraphInfo, TensorTypeInfo, ValueInfo
from crtexport.importers.onnx.registry import find
from crtexport.importers.onnx.values import Shape, Value, channels_last, stored
from crtexport.ir.ops import Reshape
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError
from crtexport.support.files import open_regular

_log = logging.getLogger(__name__)

_NPY = b"\x93NUMPY"


def read_inputs(
    builder: Builder, graph: GraphInfo, choices: InputChoices
) -> tuple[dict[str, Value], list[int]]:
    """Returns the values of a graph's inputs by name, and the tensors of those that stay inputs.

    Initializers that are listed as inputs, as in old files, are constants. Raises CrtExportError
    for an input that is no tensor of a known shape, and for choices of names that aren't there.
    """
    constants = {tensor.name for tensor in graph.initializers}
    listed = [info for info in graph.inputs if info.name not in constants]
    _check_names(choices, {info.name for info in listed}, _parameters(listed))
    values: dict[str, Value] = {}
    tensors: list[int] = []
    images = _images(graph) if choices.layout == "nhwc" else set[str]()
    notes: set[str] = set()
    for info in listed:
        builder.name = info.name
        try:
            dtype, shape = _type(info, choices, notes)
            if info.name in choices.values:
                values[info.name] = _bound(builder, choices.values[info.name], dtype, shape)
                builder.narrow(values[info.name].tensor, _bits(info))
                continue
            if shape is None:
                raise CrtExportError(
                    "its shape is not in the file",
                    hint=f"--input-shape {info.name}=1,3,96,96 says it",
                )
            order = None
            if info.name in images and len(shape) > 2:
                order = channels_last(len(shape))
            lying = [shape[axis] for axis in order or range(len(shape))]
            tensor = builder.tensor(TensorType(dtype, tuple(lying)))
            builder.narrow(tensor, _bits(info))
            values[info.name] = stored(tensor, lying, order)
            tensors.append(tensor)
        except CrtExportError as error:
            raise error.within(f"input {info.name!r}") from error.__cause__
    if notes:
        _log.warning("%s", "; ".join(sorted(notes)))
    return values, tensors


def read_outputs(
    builder: Builder, outputs: Sequence[tuple[str, Value]], inputs: Sequence[int],
    choices: InputChoices,
) -> list[int]:
    """Returns the tensors of a graph's outputs, named as in the file, with axes in ONNX's order;
    images have their channels last if the user chose that for inputs."""
    tensors: list[int] = []
    for name, value in outputs:
        builder.name, builder.origin = name, f"output {name!r}"
        order = value.order
        rank = len(value.axes)
        keep = choices.layout == "nhwc" and rank > 2 and order == channels_last(rank)
        tensor = builder.arranged(value, order if keep else None)
        if tensor in tensors or tensor in inputs or builder.tensors[tensor].constant:
            (tensor,) = builder.emit(Reshape(builder.type(tensor).shape), tensor)
        builder.tensors[tensor] = replace(builder.tensors[tensor], name=name)
        tensors.append(tensor)
    return tensors


def _parameters(listed: Sequence[ValueInfo]) -> set[str]:
    """Returns the names of open dimensions."""
    return {
        dim.parameter
        for info in listed if info.type and info.type.tensor and info.type.tensor.shape
        for dim in info.type.tensor.shape.dims if dim.parameter and dim.value is None
    }


def _check_names(choices: InputChoices, inputs: set[str], parameters: set[str]) -> None:
    for option, names, known in (
        ("--bind", choices.values, inputs), ("--input-shape", choices.shapes, inputs),
        ("--dim", choices.dims, parameters),
    ):
        for name in names:
            if name not in known:
                what = "open dimension" if option == "--dim" else "input"
                raise CrtExportError(
                    f"the network has no {what} {name!r}", location=option,
                    hint=f"it has {', '.join(sorted(known)) or 'none'}",
                )


def _type(
    info: ValueInfo, choices: InputChoices, notes: set[str]
) -> tuple[DType, Shape | None]:
    """Returns an input's element type, and its shape if it is known."""
    if info.type is None or info.type.tensor is None:
        kind = next(
            (name for name in ("sequence", "map", "optional", "sparse")
             if info.type is not None and getattr(info.type, name) is not None), "nothing known",
        )
        raise CrtExportError(f"it is no tensor, but {kind}: its size can't be fixed")
    tensor = info.type.tensor
    dtype = element_type(tensor.element)
    if info.name in choices.shapes:
        return dtype, _chosen(tensor, choices.shapes[info.name])
    if tensor.shape is None:
        return dtype, None
    shape = []
    for position, dim in enumerate(tensor.shape.dims):
        size = dim.value
        if size is None and dim.parameter in choices.dims:
            size = choices.dims[dim.parameter]
        if size is None and info.name in choices.values:
            return dtype, None
        if size is None and position == 0:
            size = 1
            name = f" {dim.parameter!r}" if dim.parameter else ""
            notes.add(f"the open dimension{name} of {info.name!r} is taken as 1")
        if size is None:
            option = f"--dim {dim.parameter}=N or " if dim.parameter else ""
            raise CrtExportError(
                f"dimension {position} ({dim.parameter or 'unnamed'}) is open",
                hint=f"fix it with {option}--input-shape {info.name}=…",
            )
        if size < 0:
            raise CrtExportError(f"dimension {position} is {size}")
        shape.append(size)
    return dtype, tuple(shape)


def _bits(info: ValueInfo) -> int | None:
    return bits_of(info.type.tensor.element) if info.type and info.type.tensor else None


def _chosen(tensor: TensorTypeInfo, shape: Sequence[int]) -> Shape:
    """Returns the user's shape. Raises CrtExportError where the file says another one."""
    if tensor.shape is not None:
        sizes = [dim.value for dim in tensor.shape.dims]
        if len(sizes) != len(shape) or any(
            known is not None and known != size for known, size in zip(sizes, shape, strict=True)
        ):
            known = ", ".join(str(d.parameter or "?") if d.value is None else str(d.value)
                              for d in tensor.shape.dims)
            raise CrtExportError(f"the shape {list(shape)} doesn't fit the file's [{known}]",
                                 location="--input-shape")
    return tuple(shape)


def _bound(builder: Builder, path: Path, dtype: DType, shape: Shape | None) -> Value:
    """Returns the constant in an .npy file."""
    try:
        with open_regular(path) as stream:
            if stream.read(len(_NPY)) != _NPY:
                raise CrtExportError("this is no .npy file", location=str(path))
            stream.seek(0)
            array = np.load(stream, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise CrtExportError(f"the file can't be read: {error}", location=str(path)) from None
    if array.dtype != dtype.numpy:
        raise CrtExportError(
            f"the file has {array.dtype}, the input is {dtype.value}", location=str(path)
        )
    if shape is not None and array.shape != shape:
        raise CrtExportError(
            f"the file's shape is {list(array.shape)}, the input's {list(shape)}",
            location=str(path),
        )
    return builder.constant(array, dtype)


def _images(graph: GraphInfo) -> set[str]:
    """Returns the names that operators take as images, with those that become such by operators
    that keep the axes."""
    found: set[str] = set()
    for node in reversed(graph.nodes):
        row = find(domain_of(node.domain), node.operator)
        if row is None or not node.inputs:
            continue
        if row.image or (row.follows and node.outputs and node.outputs[0] in found):
            found.update(node.inputs if row.follows else node.inputs[:1])
    return found


