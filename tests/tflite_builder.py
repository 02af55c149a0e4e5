"""Builds .tflite files for tests, without TensorFlow, and runs them with the reference runtime.

    model = ModelBuilder()
    x = model.tensor("x", (1, 8, 8, 3), "int8", scale=0.5, zero_point=3)
    w = model.tensor("w", (4, 3, 3, 3), "int8", scale=[0.1] * 4, axis=0, data=weights)
    y = model.tensor("y", (1, 8, 8, 4), "int8", scale=0.7, zero_point=-5)
    model.op("CONV_2D", [x, w, None], [y], padding="SAME", stride=(1, 1), activation="RELU")
    content = model.build([x], [y])
    (result,) = run_reference(content, image)

Options are named as in TensorFlow Lite's schema (``fused_activation_function="RELU"``,
``keep_dims=True``), enumerations by their names; ``stride``, ``dilation`` and ``window`` take one
number or (rows, columns), ``activation`` is short for ``fused_activation_function``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt
import tflite

from crtexport.simulation.forms_arithmetic import FIRST_VERSIONS
from tests.helpers import reference

OPTION_KINDS = {
    "CONV_2D": "Conv2DOptions",
    "CONV_3D": "Conv3DOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "FULLY_CONNECTED": "FullyConnectedOptions",
    "TRANSPOSE_CONV": "TransposeConvOptions",
    "BATCH_MATMUL": "BatchMatMulOptions",
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "L2_POOL_2D": "Pool2DOptions",
    "ADD": "AddOptions",
    "SUB": "SubOptions",
    "MUL": "MulOptions",
    "DIV": "DivOptions",
    "RESHAPE": "ReshapeOptions",
    "SQUEEZE": "SqueezeOptions",
    "EXPAND_DIMS": "ExpandDimsOptions",
    "PAD": "PadOptions",
    "SLICE": "SliceOptions",
    "STRIDED_SLICE": "StridedSliceOptions",
    "SPLIT": "SplitOptions",
    "SPLIT_V": "SplitVOptions",
    "PACK": "PackOptions",
    "UNPACK": "UnpackOptions",
    "TRANSPOSE": "TransposeOptions",
    "FILL": "FillOptions",
    "BROADCAST_TO": "BroadcastToOptions",
    "TILE": "TileOptions",
    "REVERSE_V2": "ReverseV2Options",
    "PADV2": "PadV2Options",
    "MIRROR_PAD": "MirrorPadOptions",
    "SPACE_TO_BATCH_ND": "SpaceToBatchNDOptions",
    "BATCH_TO_SPACE_ND": "BatchToSpaceNDOptions",
    "SPACE_TO_DEPTH": "SpaceToDepthOptions",
    "DEPTH_TO_SPACE": "DepthToSpaceOptions",
    "GATHER": "GatherOptions",
    "GATHER_ND": "GatherNdOptions",
    "RESIZE_BILINEAR": "ResizeBilinearOptions",
    "RESIZE_NEAREST_NEIGHBOR": "ResizeNearestNeighborOptions",
    "SHAPE": "ShapeOptions",
    "RANGE": "RangeOptions",
    "MEAN": "ReducerOptions",
    "SUM": "ReducerOptions",
    "REDUCE_MAX": "ReducerOptions",
    "REDUCE_MIN": "ReducerOptions",
    "REDUCE_PROD": "ReducerOptions",
    "REDUCE_ANY": "ReducerOptions",
    "REDUCE_ALL": "ReducerOptions",
    "ARG_MAX": "ArgMaxOptions",
    "ARG_MIN": "ArgMinOptions",
    "CUMSUM": "CumsumOptions",
    "TOPK_V2": "TopKV2Options",
    "CONCATENATION": "ConcatenationOptions",
    "SOFTMAX": "SoftmaxOptions",
    "QUANTIZE": "QuantizeOptions",
    "DEQUANTIZE": "DequantizeOptions",
    "LEAKY_RELU": "LeakyReluOptions",
    "GELU": "GeluOptions",
    "CAST": "CastOptions",
    "L2_NORMALIZATION": "L2NormOptions",
}
"""The options table of each operator that has one."""

_DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "CONV_2D": {"padding": "VALID", "stride": 1},
    "DEPTHWISE_CONV_2D": {"padding": "VALID", "stride": 1},
    "TRANSPOSE_CONV": {"padding": "VALID", "stride": 1},
    "AVERAGE_POOL_2D": {"padding": "VALID", "stride": 1},
    "MAX_POOL_2D": {"padding": "VALID", "stride": 1},
    "L2_POOL_2D": {"padding": "VALID", "stride": 1},
    "SOFTMAX": {"beta": 1.0},
}
_PAIRS = {
    "stride": ("stride_h", "stride_w"),
    "dilation": ("dilation_h_factor", "dilation_w_factor"),
    "window": ("filter_height", "filter_width"),
}
_ENUMERATIONS = {
    "padding": tflite.Padding,
    "fused_activation_function": tflite.ActivationFunctionType,
    "output_type": tflite.TensorType,
    "weights_format": tflite.FullyConnectedOptionsWeightsFormat,
}
_NEW_TYPES = {"int2": 19}
"""Element types that the schema's accessors haven't."""
# The versions of operators that this element type of the first input needs; 1 where none is said.
_VERSIONS: Mapping[str, Mapping[str, int]] = {
    "CONV_2D": {"int8": 3, "int16": 4, "hybrid": 2, "int4": 6},
    "DEPTHWISE_CONV_2D": {"int8": 3, "int16": 5, "hybrid": 4, "float32": 2, "uint8": 2, "int4": 6},
    "FULLY_CONNECTED": {"int8": 4, "int16": 7, "hybrid": 3, "keep": 5, "int4": 9, "int2": 14},
    "TRANSPOSE_CONV": {"int32": 3},  # of the first input, which is the output's shape
    "RESHAPE": {},
    **{code: {} for code in FIRST_VERSIONS},
    "SQUEEZE": {},
    "EXPAND_DIMS": {},
    "QUANTIZE": {"int16": 2},
    "DEQUANTIZE": {"int8": 2, "int16": 3, "float16": 3},
    "SUM": {"int8": 2, "uint8": 2, "int16": 2},
    "REDUCE_PROD": {"int8": 2, "uint8": 2, "int16": 2},
    "ARG_MAX": {"int8": 2, "uint8": 2, "bool": 2},
    "ARG_MIN": {"int8": 2, "uint8": 2, "bool": 2},
}
_USUAL_VERSIONS = {"int8": 2, "int16": 3}


@dataclass
class _Tensor:
    name: str
    shape: tuple[int, ...]
    dtype: str
    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int
    data: bytes
    signature: tuple[int, ...] | None
    variable: bool


@dataclass
class _Operator:
    code: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    options: dict[str, Any]
    options_kind: str | None
    version: int
    custom: bytes


class ModelBuilder:
    """One subgraph of tensors and operators; tensors are numbered as they are made."""

    def __init__(self) -> None:
        self._tensors: list[_Tensor] = []
        self._operators: list[_Operator] = []

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str = "float32",
        scale: float | Sequence[float] | None = None,
        zero_point: int | Sequence[int] = 0,
        data: npt.ArrayLike | None = None,
        axis: int | None = None,
        *,
        signature: Sequence[int] | None = None,
        variable: bool = False,
    ) -> int:
        """A tensor, constant when it has ``data`` (converted to ``dtype``); returns its number.

        Several scales go along ``axis``; one zero point serves them all. ``signature`` is the
        shape with -1 for what is open.
        """
        scales = () if scale is None else tuple(np.atleast_1d(scale).astype(float).tolist())
        zeros = tuple(np.atleast_1d(zero_point).astype(int).tolist())
        raw = b""
        if data is not None:
            bits = {"int4": 4, "int2": 2}.get(dtype)
            array = np.asarray(data, dtype="int8" if bits else dtype)
            if array.size != int(np.prod(tuple(shape))):
                raise ValueError(f"{array.size} values for {name} of shape {tuple(shape)}")
            if bits:
                several = 8 // bits
                whole = np.append(array.reshape(-1), np.zeros(-array.size % several, np.int8))
                fields = (whole.astype(np.uint8) & (1 << bits) - 1).reshape(-1, several)
                array = (fields << bits * np.arange(several)).sum(1).astype(np.uint8)
            raw = array.astype(array.dtype.newbyteorder("<")).tobytes()
        self._tensors.append(
            _Tensor(
                name,
                tuple(shape),
                dtype,
                scales,
                zeros if len(zeros) == len(scales) else zeros * len(scales),
                axis or 0,
                raw,
                None if signature is None else tuple(signature),
                variable,
            )
        )
        return len(self._tensors) - 1

    def op(
        self,
        code: str,
        inputs: Sequence[int | None],
        outputs: Sequence[int],
        *,
        version: int | None = None,
        options_kind: str | None = "usual",
        custom: bytes = b"",
        **options: Any,
    ) -> int:
        """An operator by its builtin name, or "custom:NAME"; returns its number.

        ``custom`` are the options of the latter. ``options_kind`` writes another table of options
        than the operator's own, or (None) none.
        """
        kind = OPTION_KINDS.get(code) if options_kind == "usual" else options_kind
        fields = _fields({**_DEFAULTS.get(code, {}), **options}) if kind else {}
        if code == "DEPTHWISE_CONV_2D" and kind:
            channels = self._tensors[inputs[0] or 0].shape[-1]
            units = self._tensors[inputs[1] or 0].shape[-1]
            fields.setdefault("depth_multiplier", units // channels)
        if version is None:
            version = self._version(code, inputs, fields)
        self._operators.append(
            _Operator(code, tuple(inputs), tuple(outputs), fields, kind, version, custom)
        )
        return len(self._operators) - 1

    def _version(
        self, code: str, inputs: Sequence[int | None], fields: Mapping[str, object]
    ) -> int:
        count = len(self._tensors)  # tests of damaged files ask for tensors beyond
        types = [self._tensors[i].dtype for i in inputs if i is not None and 0 <= i < count]
        kind = types[0] if types else ""
        if types[:2] == ["float32", "int8"]:
            kind = "hybrid"
        if types[1:2] in (["int4"], ["int2"]):
            kind = types[1]
        if code == "FULLY_CONNECTED" and fields.get("keep_num_dims"):
            kind = "keep"
        return _VERSIONS.get(code, _USUAL_VERSIONS).get(kind, 1)

    def build(
        self,
        inputs: Sequence[int],
        outputs: Sequence[int],
        *,
        names: Mapping[str, int] | None = None,
        copies: int = 1,
        repeats: int = 1,
        schema_version: int = 3,
        code_fields: Sequence[str] = ("old", "new"),
    ) -> bytes:
        """The file. ``names`` adds a signature; ``code_fields`` have the codes of operators.

        ``copies`` repeats the subgraph; ``repeats`` lists each operator so often, without copies.
        """
        b = flatbuffers.Builder(1024)
        buffers = [self._buffer(b, b"")] + [self._buffer(b, t.data) for t in self._tensors]
        codes = sorted({(op.code, op.version) for op in self._operators})
        code_tables = [
            _operator_code(b, code, version, code_fields) for code, version in codes
        ]
        graphs = [self._subgraph(b, codes, inputs, outputs, repeats) for _ in range(copies)]
        signatures = [self._signature(b, inputs, outputs, names)] if names else []
        description = b.CreateString("built by a test")
        vectors = [_vector(b, tables) for tables in (code_tables, graphs, buffers, signatures)]
        tflite.ModelStart(b)
        tflite.ModelAddVersion(b, schema_version)
        tflite.ModelAddOperatorCodes(b, vectors[0])
        tflite.ModelAddSubgraphs(b, vectors[1])
        tflite.ModelAddDescription(b, description)
        tflite.ModelAddBuffers(b, vectors[2])
        if signatures:
            tflite.ModelAddSignatureDefs(b, vectors[3])
        b.Finish(tflite.ModelEnd(b), b"TFL3")
        return bytes(b.Output())

    @staticmethod
    def _buffer(b: flatbuffers.Builder, data: bytes) -> int:
        vector = 0
        if data:
            # Constants are aligned to 16 bytes, which the builder's own functions can't do.
            b.StartVector(1, len(data), 16)
            b.head = b.Head() - len(data)
            b.Bytes[b.Head() : b.Head() + len(data)] = data
            vector = b.EndVector()
        tflite.BufferStart(b)
        if data:
            tflite.BufferAddData(b, vector)
        return int(tflite.BufferEnd(b))

    def _subgraph(
        self,
        b: flatbuffers.Builder,
        codes: list[tuple[str, int]],
        inputs: Sequence[int],
        outputs: Sequence[int],
        repeats: int,
    ) -> int:
        tensors = _vector(b, [_tensor(b, i + 1, t) for i, t in enumerate(self._tensors)])
        positions = {code: i for i, code in enumerate(codes)}
        tables = [_operator(b, op, positions[op.code, op.version]) for op in self._operators]
        operators = _vector(b, tables * repeats)
        given, results = _integers(b, inputs), _integers(b, outputs)
        name = b.CreateString("main")
        tflite.SubGraphStart(b)
        tflite.SubGraphAddTensors(b, tensors)
        tflite.SubGraphAddInputs(b, given)
        tflite.SubGraphAddOutputs(b, results)
        tflite.SubGraphAddOperators(b, operators)
        tflite.SubGraphAddName(b, name)
        return int(tflite.SubGraphEnd(b))

    @staticmethod
    def _signature(
        b: flatbuffers.Builder,
        inputs: Sequence[int],
        outputs: Sequence[int],
        names: Mapping[str, int],
    ) -> int:
        maps: dict[str, list[int]] = {"inputs": [], "outputs": []}
        for name, tensor in names.items():
            text = b.CreateString(name)
            tflite.TensorMapStart(b)
            tflite.TensorMapAddName(b, text)
            tflite.TensorMapAddTensorIndex(b, tensor)
            maps["inputs" if tensor in inputs else "outputs"].append(tflite.TensorMapEnd(b))
        given, results = _vector(b, maps["inputs"]), _vector(b, maps["outputs"])
        key = b.CreateString("serving_default")
        tflite.SignatureDefStart(b)
        tflite.SignatureDefAddInputs(b, given)
        tflite.SignatureDefAddOutputs(b, results)
        tflite.SignatureDefAddSignatureKey(b, key)
        return int(tflite.SignatureDefEnd(b))


def run_reference(content: bytes, *inputs: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Outputs of a .tflite file by tflite-runtime's reference kernels; see support.unavailable."""
    return reference(content).run(inputs)


def _fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by the schema's names, enumerations as numbers."""
    fields: dict[str, Any] = {}
    for name, value in options.items():
        if name in _PAIRS:
            rows, columns = (value, value) if isinstance(value, int) else value
            fields.update(zip(_PAIRS[name], (rows, columns), strict=True))
            continue
        full = "fused_activation_function" if name == "activation" else name
        if isinstance(value, str) and full in _ENUMERATIONS:
            value = getattr(_ENUMERATIONS[full], value)  # noqa: PLW2901
        fields[full] = value
    return fields


def _tensor(b: flatbuffers.Builder, buffer: int, tensor: _Tensor) -> int:
    shape = _integers(b, tensor.shape)
    signature = None if tensor.signature is None else _integers(b, tensor.signature)
    name = b.CreateString(tensor.name)
    scales = b.CreateNumpyVector(np.array(tensor.scale, "<f4"))
    zeros = b.CreateNumpyVector(np.array(tensor.zero_point, "<i8"))
    tflite.QuantizationParametersStart(b)
    if tensor.scale:
        tflite.QuantizationParametersAddScale(b, scales)
        tflite.QuantizationParametersAddZeroPoint(b, zeros)
        tflite.QuantizationParametersAddQuantizedDimension(b, tensor.axis)
    quantization = tflite.QuantizationParametersEnd(b)
    tflite.TensorStart(b)
    tflite.TensorAddShape(b, shape)
    code = _NEW_TYPES.get(tensor.dtype)
    tflite.TensorAddType(b, code or getattr(tflite.TensorType, tensor.dtype.upper()))
    tflite.TensorAddBuffer(b, buffer)
    tflite.TensorAddName(b, name)
    tflite.TensorAddQuantization(b, quantization)
    tflite.TensorAddIsVariable(b, tensor.variable)
    if signature is not None:
        tflite.TensorAddShapeSignature(b, signature)
    tflite.TensorAddHasRank(b, True)
    return int(tflite.TensorEnd(b))


def _operator_code(
    b: flatbuffers.Builder, code: str, version: int, fields: Sequence[str]
) -> int:
    custom = b.CreateString(code.removeprefix("custom:"))
    name = "CUSTOM" if code.startswith("custom:") else code
    number = getattr(tflite.BuiltinOperator, name)
    tflite.OperatorCodeStart(b)
    if "old" in fields:
        tflite.OperatorCodeAddDeprecatedBuiltinCode(b, min(number, 127))
    if "new" in fields:
        tflite.OperatorCodeAddBuiltinCode(b, number)
    tflite.OperatorCodeAddVersion(b, version)
    if name == "CUSTOM":
        tflite.OperatorCodeAddCustomCode(b, custom)
    return int(tflite.OperatorCodeEnd(b))


def _operator(b: flatbuffers.Builder, op: _Operator, code: int) -> int:
    inputs = _integers(b, [-1 if i is None else i for i in op.inputs])
    outputs = _integers(b, op.outputs)
    options = None
    if op.options_kind:
        getattr(tflite, f"{op.options_kind}Start")(b)
        for name, value in op.options.items():
            field = "".join(part.capitalize() for part in name.split("_"))
            getattr(tflite, f"{op.options_kind}Add{field}")(b, value)
        options = getattr(tflite, f"{op.options_kind}End")(b)
    custom = b.CreateByteVector(op.custom) if op.custom else 0
    tflite.OperatorStart(b)
    tflite.OperatorAddOpcodeIndex(b, code)
    tflite.OperatorAddInputs(b, inputs)
    tflite.OperatorAddOutputs(b, outputs)
    if options is not None:
        kind = getattr(tflite.BuiltinOptions, op.options_kind or "NONE")
        tflite.OperatorAddBuiltinOptionsType(b, kind)
        tflite.OperatorAddBuiltinOptions(b, options)
    if op.custom:
        tflite.OperatorAddCustomOptions(b, custom)
    return int(tflite.OperatorEnd(b))


def _integers(b: flatbuffers.Builder, values: Sequence[int]) -> int:
    return int(b.CreateNumpyVector(np.array(values, "<i4")))


def _vector(b: flatbuffers.Builder, tables: Sequence[int]) -> int:
    b.StartVector(4, len(tables), 4)
    for table in reversed(tables):
        b.PrependUOffsetTRelative(table)
    return int(b.EndVector())
