"""The canonical operators: one frozen dataclass each, attributes and one sentence, nothing else.

Layouts: activations NHWC, convolution weights OHWI, depthwise weights 1HWC, fully connected
weights (units, depth). Tensors that an importer found constant and that only steer an operator
(axes, shapes, paddings) are attributes here, never inputs.
"""

from __future__ import annotations

from crtexport.ir.ops.activation import Logistic, Relu, Relu6, Softmax, Tanh
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
from crtexport.ir.ops.base import Activation, Elementwise, Padding2D, Stateful
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
from crtexport.ir.ops.pool import AveragePool2D, MaxPool2D
from crtexport.ir.ops.quantize import Dequantize, Quantize
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
from crtexport.ir.ops.shape import Concatenation, Pad, Reshape
from crtexport.ir.ops.state import AssignVariable, ReadVariable
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
    | AveragePool2D | MaxPool2D
    | Add | Sub | Mul | Div | FloorDiv | FloorMod | Maximum | Minimum | SquaredDifference | AddN
    | Equal | NotEqual | Greater | GreaterEqual | Less | LessEqual
    | LogicalAnd | LogicalOr | LogicalNot | Select
    | Reshape | Pad | Concatenation
    | Mean | Sum | ReduceMax | ReduceMin | ReduceProd | ReduceAny | ReduceAll
    | ArgMax | ArgMin | CumSum
    | Softmax | Logistic | Tanh | Relu | Relu6
    | Quantize | Dequantize
    | ReadVariable | AssignVariable
)
"""Any operator."""

__all__ = [
    "Activation",
    "Add",
    "AddN",
    "ArgMax",
    "ArgMin",
    "AssignVariable",
    "AveragePool2D",
    "BatchMatMul",
    "Concatenation",
    "Conv2D",
    "CumSum",
    "DepthwiseConv2D",
    "Dequantize",
    "Div",
    "Elementwise",
    "EmbeddingLookup",
    "Equal",
    "FloorDiv",
    "FloorMod",
    "FullyConnected",
    "Greater",
    "GreaterEqual",
    "Less",
    "LessEqual",
    "LogicalAnd",
    "LogicalNot",
    "LogicalOr",
    "Logistic",
    "MaxPool2D",
    "Maximum",
    "Mean",
    "Minimum",
    "Mul",
    "NotEqual",
    "Op",
    "Pad",
    "Padding2D",
    "Quantize",
    "ReadVariable",
    "ReduceAll",
    "ReduceAny",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "Relu",
    "Relu6",
    "Reshape",
    "Select",
    "Softmax",
    "SquaredDifference",
    "Stateful",
    "Sub",
    "Sum",
    "Tanh",
    "TransposeConv2D",
]
