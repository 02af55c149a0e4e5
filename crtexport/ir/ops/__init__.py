"""The canonical operators: one frozen record each, attributes and one sentence, nothing else.

Layouts: activations NHWC, convolution weights OHWI, depthwise weights 1HWC, fully connected
weights (units, depth). Tensors that an importer found constant and that only steer an operator
(axes, shapes, paddings) are attributes here, never inputs.
"""

from __future__ import annotations

from crtexport.ir.ops.activation import (
    Elu,
    Gelu,
    HardSwish,
    L2Normalization,
    LeakyRelu,
    Logistic,
    LogSoftmax,
    Prelu,
    Relu,
    Relu6,
    ReluN1To1,
    Softmax,
    Tanh,
)
from crtexport.ir.ops.arithmetic import (
    Add,
    AddN,
    Div,
    FloorDiv,
    FloorMod,
    Maximum,
    Minimum,
    Mul,
    SquaredDifference,
    Sub,
)
from crtexport.ir.ops.base import Activation, Control, Elementwise, Foreign, Padding2D, Stateful
from crtexport.ir.ops.compare import (
    Equal,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    LogicalAnd,
    LogicalNot,
    LogicalOr,
    NotEqual,
    Select,
)
from crtexport.ir.ops.control import If, While
from crtexport.ir.ops.detection import DetectionPostProcess
from crtexport.ir.ops.external import ETHOS_U_ALIGN, EthosU, External
from crtexport.ir.ops.fused import Fused
from crtexport.ir.ops.gather import DynamicUpdateSlice, Gather, GatherNd
from crtexport.ir.ops.pool import AveragePool2D, L2Pool2D, MaxPool2D
from crtexport.ir.ops.quantize import Cast, Dequantize, Quantize
from crtexport.ir.ops.recurrent import Svdf, UnidirectionalSequenceLstm
from crtexport.ir.ops.reduce import (
    ArgMax,
    ArgMin,
    CumSum,
    Mean,
    ReduceAll,
    ReduceAny,
    ReduceMax,
    ReduceMin,
    ReduceProd,
    Sum,
)
from crtexport.ir.ops.resize import ResizeBilinear, ResizeNearestNeighbor
from crtexport.ir.ops.shape import (
    BatchToSpaceNd,
    BroadcastTo,
    Concatenation,
    DepthToSpace,
    MirrorPad,
    Pack,
    Pad,
    PadV2,
    Reshape,
    Slice,
    SpaceToBatchNd,
    SpaceToDepth,
    Split,
    Tile,
    Transpose,
    Unpack,
)
from crtexport.ir.ops.state import AssignVariable, ReadVariable
from crtexport.ir.ops.unary import (
    Abs,
    Ceil,
    Cos,
    Exp,
    Floor,
    Log,
    Neg,
    Round,
    Rsqrt,
    Sin,
    Sqrt,
    Square,
    ZerosLike,
)
from crtexport.ir.ops.weighted import (
    BatchMatMul,
    Conv2D,
    DepthwiseConv2D,
    EmbeddingLookup,
    FullyConnected,
    TransposeConv2D,
)

Op = (
    Conv2D | DepthwiseConv2D | FullyConnected | TransposeConv2D | BatchMatMul | EmbeddingLookup
    | AveragePool2D | MaxPool2D | L2Pool2D
    | Add | Sub | Mul | Div | FloorDiv | FloorMod | Maximum | Minimum | SquaredDifference | AddN
    | Equal | NotEqual | Greater | GreaterEqual | Less | LessEqual
    | LogicalAnd | LogicalOr | LogicalNot | Select
    | Reshape | Pad | PadV2 | MirrorPad | Concatenation | Pack | Split | Unpack | Slice
    | Transpose | BroadcastTo | Tile | SpaceToDepth | DepthToSpace | SpaceToBatchNd
    | BatchToSpaceNd | Gather | GatherNd | DynamicUpdateSlice
    | ResizeBilinear | ResizeNearestNeighbor
    | Mean | Sum | ReduceMax | ReduceMin | ReduceProd | ReduceAny | ReduceAll
    | ArgMax | ArgMin | CumSum | DetectionPostProcess
    | Softmax | Logistic | Tanh | Relu | Relu6 | ReluN1To1 | LeakyRelu | Elu | Gelu | HardSwish
    | Prelu | LogSoftmax | L2Normalization
    | Abs | Neg | Square | Exp | Log | Sqrt | Rsqrt | Sin | Cos | Ceil | Floor | Round | ZerosLike
    | Quantize | Dequantize | Cast
    | ReadVariable | AssignVariable | Svdf | UnidirectionalSequenceLstm
    | If | While | External | EthosU | Fused
)
"""Any operator."""

__all__ = [
    "ETHOS_U_ALIGN",
    "Abs",
    "Activation",
    "Add",
    "AddN",
    "ArgMax",
    "ArgMin",
    "AssignVariable",
    "AveragePool2D",
    "BatchMatMul",
    "BatchToSpaceNd",
    "BroadcastTo",
    "Cast",
    "Ceil",
    "Concatenation",
    "Control",
    "Conv2D",
    "Cos",
    "CumSum",
    "DepthToSpace",
    "DepthwiseConv2D",
    "Dequantize",
    "DetectionPostProcess",
    "Div",
    "DynamicUpdateSlice",
    "Elementwise",
    "Elu",
    "EmbeddingLookup",
    "Equal",
    "EthosU",
    "Exp",
    "External",
    "Floor",
    "FloorDiv",
    "FloorMod",
    "Foreign",
    "FullyConnected",
    "Fused",
    "Gather",
    "GatherNd",
    "Gelu",
    "Greater",
    "GreaterEqual",
    "HardSwish",
    "If",
    "L2Normalization",
    "L2Pool2D",
    "LeakyRelu",
    "Less",
    "LessEqual",
    "Log",
    "LogSoftmax",
    "LogicalAnd",
    "LogicalNot",
    "LogicalOr",
    "Logistic",
    "MaxPool2D",
    "Maximum",
    "Mean",
    "Minimum",
    "MirrorPad",
    "Mul",
    "Neg",
    "NotEqual",
    "Op",
    "Pack",
    "Pad",
    "PadV2",
    "Padding2D",
    "Prelu",
    "Quantize",
    "ReadVariable",
    "ReduceAll",
    "ReduceAny",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "Relu",
    "Relu6",
    "ReluN1To1",
    "Reshape",
    "ResizeBilinear",
    "ResizeNearestNeighbor",
    "Round",
    "Rsqrt",
    "Select",
    "Sin",
    "Slice",
    "Softmax",
    "SpaceToBatchNd",
    "SpaceToDepth",
    "Split",
    "Sqrt",
    "Square",
    "SquaredDifference",
    "Stateful",
    "Sub",
    "Sum",
    "Svdf",
    "Tanh",
    "Tile",
    "Transpose",
    "TransposeConv2D",
    "UnidirectionalSequenceLstm",
    "Unpack",
    "While",
    "ZerosLike",
]
