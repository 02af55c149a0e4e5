"""The invariants of every Graph, checked after import and after each pass.

Only networks without a meaning are refused here; limits of kernels are in the kernels' own rules.
"""

from __future__ import annotations

import math

from crtexport.ir import ops
from crtexport.ir.bias_scales import odd_scale, refused_by_runtimes
from crtexport.ir.external import check_external
from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.infer import infer
from crtexport.ir.numerics import Numerics
from crtexport.ir.order import misplaced_use
from crtexport.ir.types import ConstantRef, DType, Quantization, TensorType
from crtexport.ir.variables import check_variables
from crtexport.support.errors import CrtExportError

MAX_RANK = 8
MAX_DEPTH = 16
"""The deepest nesting of graphs."""
MAX_BYTES = 1 << 40
"""More than any tensor of a network that is meant for a microcontroller or its host."""

_SCALED = frozenset({DType.INT8, DType.UINT8, DType.INT16})
_NEED_SCALES = (
    ops.BatchMatMul, ops.TransposeConv2D,
    ops.Conv2D, ops.DepthwiseConv2D, ops.FullyConnected, ops.AveragePool2D, ops.Add, ops.Sub,
    ops.Mul, ops.Div, ops.SquaredDifference, ops.Mean, ops.Softmax, ops.Logistic, ops.Tanh,
    ops.Quantize, ops.Dequantize,
)  # fmt: skip


def verify(graph: Graph) -> None:
    """Raises CrtExportError, naming the node or tensor, where ``graph`` is not a valid network.

    Checked: ids, order, one producer per tensor, shapes and types as inferred, constants of the
    right size, quantization. A tensor may be a graph output twice, and an input may be an output.
    """
    try:
        _check(graph, 0)
        if not graph.outputs:
            raise CrtExportError("the graph has no output")
    except CrtExportError as error:
        raise error.within(*([graph.source] if graph.source else [])) from None


def _check(graph: Graph, depth: int) -> None:
    """``depth``: how many graphs this one is in."""
    if depth > MAX_DEPTH:
        raise CrtExportError(f"graphs are nested more than {MAX_DEPTH} deep")
    for index, tensor in enumerate(graph.tensors):
        _check_tensor(index, tensor)
    for node in graph.nodes:
        for number, nested in enumerate(node.graphs):
            try:
                _check_nested(graph, nested, depth)
            except CrtExportError as error:
                raise error.within(str(node), f"graph {number}") from None
    _check_order(graph, nested=depth > 0)
    check_variables(graph)
    check_external(graph)
    for node in graph.nodes:
        _check_node(graph, node)


def _check_nested(outer: Graph, graph: Graph, depth: int) -> None:
    if graph.numerics is not outer.numerics:
        raise CrtExportError("a graph in a graph must have the numerics of that")
    _check(graph, depth + 1)
    for variable in graph.variables:
        if variable not in graph.inputs:
            raise CrtExportError(
                f"{describe(variable, graph.tensors[variable])} is a variable of its own",
                hint="make it a variable of the outermost graph and give it as an input",
            )


def describe(index: int, tensor: Tensor) -> str:
    """Returns a tensor's number and quoted name, for errors."""
    return f"tensor {index} {tensor.name!r}"


def check_type(type_: TensorType) -> None:
    """Raises CrtExportError, without a location, unless ``type_`` is static and of sane size."""
    if len(type_.shape) > MAX_RANK:
        raise CrtExportError(f"{len(type_.shape)} dimensions; the most is {MAX_RANK}")
    if any(size < 0 for size in type_.shape):
        raise CrtExportError(
            f"the shape {list(type_.shape)} is not static",
            hint="give every dimension a fixed, non-negative size",
        )
    # Sizes one by one first: the product of huge sizes is a needlessly huge integer.
    if any(size > MAX_BYTES for size in type_.shape) or type_.nbytes > MAX_BYTES:
        raise CrtExportError(f"a tensor of more than {MAX_BYTES} bytes")
    if type_.quant is not None:
        _check_quantization(type_, type_.quant)


def _check_tensor(index: int, tensor: Tensor) -> None:
    try:
        check_type(tensor.type)
        if tensor.constant is not None:
            _check_constant(tensor.type, tensor.constant)
        if tensor.variable is not None and tensor.variable.initial is not None:
            _check_constant(tensor.type, tensor.variable.initial)
    except CrtExportError as error:
        raise error.within(describe(index, tensor)) from None


def _check_quantization(type_: TensorType, quant: Quantization) -> None:
    if not type_.dtype.is_integer:
        raise CrtExportError(f"{type_.dtype.value} can't have quantization")
    if not quant.scale or len(quant.scale) != len(quant.zero_point):
        raise CrtExportError(f"{len(quant.scale)} scales with {len(quant.zero_point)} zero points")
    # There are as many as channels: a wrong one is looked for where there may be one.
    if not (all(map(math.isfinite, quant.scale)) and min(quant.scale) > 0):
        for scale in quant.scale:
            if not (math.isfinite(scale) and scale > 0):
                raise CrtExportError(f"the scale {scale} is not positive and finite")
    if any(quant.zero_point):
        low, high = type_.dtype.limits
        for zero in quant.zero_point:
            if not low <= zero <= high:
                raise CrtExportError(f"the zero point {zero} is outside of {type_.dtype.value}")
    if quant.axis is None:
        if len(quant.scale) != 1:
            raise CrtExportError(f"{len(quant.scale)} scales without an axis")
        return
    if not 0 <= quant.axis < len(type_.shape):
        raise CrtExportError(f"quantized along axis {quant.axis} of {type_}")
    if len(quant.scale) != type_.shape[quant.axis]:
        raise CrtExportError(f"{len(quant.scale)} scales for axis {quant.axis} of {type_}")


def _check_constant(type_: TensorType, constant: ConstantRef) -> None:
    if (constant.data, constant.path, constant.made).count(None) != 2:
        raise CrtExportError("a constant needs either bytes or a file")
    held = constant.nbytes if constant.data is None else len(constant.data)
    if not constant.nbytes == held == type_.nbytes or constant.offset < 0:
        raise CrtExportError(f"{type_} takes {type_.nbytes} bytes, the constant has {held}")


def _check_order(graph: Graph, *, nested: bool) -> None:
    """Checks that every tensor is defined once, before it is used."""
    defined = {i for i, tensor in enumerate(graph.tensors) if tensor.constant is not None}
    defined.update(graph.variables)
    for position, tensor in enumerate(graph.inputs):
        _check_id(graph, tensor, f"graph input {position}")
        lent = nested and graph.tensors[tensor].variable is not None
        if (tensor in defined and not lent) or tensor in graph.inputs[:position]:
            kept = "a variable" if graph.tensors[tensor].variable else "already a graph input"
            why = "a constant" if graph.constant(tensor) else kept
            raise _misplaced(graph, tensor, f"is {why}", f"graph input {position}")
        _check_per_tensor(graph, tensor)
        defined.add(tensor)
    for node in graph.nodes:
        for position, maybe in enumerate(node.inputs):
            if maybe is None:
                continue
            if maybe not in defined:
                _check_id(graph, maybe, str(node), f"input {position}")
                raise misplaced_use(graph, node, position, maybe)
        for position, tensor in enumerate(node.outputs):
            _check_id(graph, tensor, str(node), f"output {position}")
            if tensor in defined:
                raise _misplaced(
                    graph, tensor, "is defined a second time", str(node), f"output {position}"
                )
            _check_per_tensor(graph, tensor)
            defined.add(tensor)
    for position, tensor in enumerate(graph.outputs):
        _check_id(graph, tensor, f"graph output {position}")
        if tensor not in defined:
            raise CrtExportError(
                f"nothing computes {describe(tensor, graph.tensors[tensor])}",
                location=f"graph output {position}",
            )


def _check_id(graph: Graph, tensor: int, *where: str) -> None:
    if not 0 <= tensor < len(graph.tensors):
        raise CrtExportError(
            f"there is no tensor {tensor}; the graph has {len(graph.tensors)}", location=where
        )


def _misplaced(graph: Graph, tensor: int, what: str, *where: str) -> CrtExportError:
    return CrtExportError(f"{describe(tensor, graph.tensors[tensor])} {what}", location=where)


def _check_per_tensor(graph: Graph, tensor: int) -> None:
    quant = graph.type(tensor).quant
    if quant is not None and not quant.per_tensor:
        raise CrtExportError(
            "only constants can have a scale per slice",
            location=describe(tensor, graph.tensors[tensor]),
        )


def _check_node(graph: Graph, node: Node) -> None:
    try:
        types = tuple(None if i is None else graph.type(i) for i in node.inputs)
        declared = tuple(graph.type(i) for i in node.outputs)
        if node.graphs and not isinstance(node.op, ops.Control):
            raise CrtExportError("the operator runs no graphs of its own")
        if isinstance(node.op, ops.Fused | ops.Cascade):
            _check_parts(graph, node)
        if isinstance(node.op, ops.Foreign | ops.Fused | ops.Cascade):
            return
        element_types = tuple(type_.dtype for type_ in declared)
        inferred = infer(node.op, types, declared=element_types, graphs=node.graphs)
        if len(declared) != len(inferred):
            wanted = f"{len(inferred)} output{'s' if len(inferred) != 1 else ''}"
            raise CrtExportError(f"expected {wanted}, found {len(declared)}")
        for position, (found, expected) in enumerate(zip(declared, inferred, strict=True)):
            if (found.dtype, found.shape) != (expected.dtype, expected.shape):
                name = describe(node.outputs[position], graph.tensors[node.outputs[position]])
                raise CrtExportError(f"{name} is {found}, but the operator gives {expected}")
        _check_scaled(node.op, types, declared, graph.numerics)
        odd = odd_scale(graph, node)
        if odd is not None and refused_by_runtimes(graph, node):
            raise CrtExportError(odd)
    except CrtExportError as error:
        raise error.within(str(node)) from None


def _check_parts(graph: Graph, node: Node) -> None:
    """Checks that each part fits its tensors, and reads only inputs of the node or the result of
    the part before; in a cascade, the result of any part before."""
    given = {*node.inputs, None}
    for part in node.parts:
        _check_node(graph, part)
        if not given.issuperset(part.inputs):
            raise CrtExportError(
                f"{part} reads a tensor that is no input of the node and no result of a part"
            )
        kept = given if isinstance(node.op, ops.Cascade) else node.inputs
        given = {*kept, *part.outputs}
    if isinstance(node.op, ops.Cascade):
        results = {tensor for part in node.parts for tensor in part.outputs}
        if not node.outputs or not results.issuperset(node.outputs):
            raise CrtExportError("its outputs are not those of its parts")
    elif not node.parts or node.parts[-1].outputs != node.outputs:
        raise CrtExportError("its outputs are not those of its last part")


def _check_scaled(
    op: ops.Op, inputs: tuple[TensorType | None, ...], outputs: tuple[TensorType, ...],
    numerics: Numerics,
) -> None:
    """Integers that stand for real numbers have scales; weights and biases the usual ones."""
    present = [type_ for type_ in inputs if type_ is not None]
    if isinstance(op, _NEED_SCALES):
        for type_ in (*present, *outputs):
            if type_.dtype in _SCALED and type_.quant is None:
                raise CrtExportError(f"{type_} has no scale and zero point")
    if isinstance(op, ops.Concatenation):
        scaled = [t.quant is not None for t in (*present, *outputs) if t.dtype in _SCALED]
        if any(scaled) and not all(scaled):
            raise CrtExportError("some of the integer tensors have scales and others have none")
    if isinstance(op, ops.Conv2D | ops.DepthwiseConv2D | ops.FullyConnected | ops.TransposeConv2D):
        bias = inputs[2] if len(inputs) > 2 else None
        axis = 3 if isinstance(op, ops.DepthwiseConv2D) else 0
        _check_weights(op, present[1], axis, numerics)
        if bias is not None and bias.quant is not None and any(bias.quant.zero_point):
            raise CrtExportError("an integer bias must have zero point 0")


def _check_weights(op: ops.Op, weights: TensorType, axis: int, numerics: Numerics) -> None:
    quant = weights.quant
    if quant is None:
        return
    # Old fully connected layers have weights with a zero point; runtimes still subtract it.
    shifted = isinstance(op, ops.FullyConnected) or numerics is Numerics.ORT
    legacy = shifted and quant.per_tensor
    if weights.dtype is DType.INT8 and any(quant.zero_point) and not legacy:
        raise CrtExportError("int8 weights must have zero point 0")
    if not quant.per_tensor and quant.axis != axis:
        raise CrtExportError(f"scales of these weights go along axis {axis}, found {quant.axis}")
