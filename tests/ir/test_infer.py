"""Output types of every operator, and what is said about inputs that don't fit."""

from __future__ import annotations

import pytest

from crtexport.ir.infer import arity, infer
from crtexport.ir.infer.base import INFERENCES
from crtexport.ir.ops import (
    OPERATORS,
    Abs,
    Add,
    ArgMax,
    ArgMin,
    AssignVariable,
    AverageOfSums,
    AveragePool2D,
    BatchMatMul,
    Cast,
    Ceil,
    ChannelSums,
    Concatenation,
    Conv2D,
    Cos,
    CumSum,
    DepthwiseConv2D,
    Dequantize,
    DetectionPostProcess,
    Elu,
    EmbeddingLookup,
    EthosU,
    Exp,
    External,
    Floor,
    FullyConnected,
    Gelu,
    HardSwish,
    If,
    L2Normalization,
    L2Pool2D,
    LeakyRelu,
    Log,
    Logistic,
    LogSoftmax,
    MaxPool2D,
    Mean,
    Mul,
    Neg,
    Op,
    Pad,
    Padding2D,
    Prelu,
    Quantize,
    ReadVariable,
    ReduceAll,
    ReduceAny,
    ReduceMax,
    ReduceMin,
    ReduceProd,
    Relu,
    Relu6,
    ReluN1To1,
    Reshape,
    Round,
    Rsqrt,
    Sin,
    Softmax,
    Sqrt,
    Square,
    Sub,
    Sum,
    Svdf,
    Tanh,
    TransposeConv2D,
    UnidirectionalSequenceLstm,
    While,
    ZerosLike,
)
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError
from tests.differential.numpy_cases import NUMPY_CASES
from tests.ir.test_infer_elementwise import GOOD as ELEMENTWISE
from tests.ir.test_infer_shape import GOOD as MOVERS

F32, F16, I8, U8 = DType.FLOAT32, DType.FLOAT16, DType.INT8, DType.UINT8
I16, I32, I64 = DType.INT16, DType.INT32, DType.INT64
Shape = tuple[int, ...]


def types(*shapes: Shape, dtype: DType = F32) -> tuple[TensorType, ...]:
    return tuple(TensorType(dtype, shape) for shape in shapes)


WIDE = Padding2D(1, 2, 0, 1)
ELEMENTARY = (
    Abs, Ceil, Cos, Elu, Exp, Floor, Gelu, HardSwish, LeakyRelu, Log, Neg, ReluN1To1, Round, Rsqrt,
    Sin, Sqrt, Square, ZerosLike, LogSoftmax, L2Normalization,
)
GOOD: list[tuple[Op, tuple[Shape, ...], Shape]] = [
    (Conv2D(), ((2, 5, 6, 3), (4, 3, 2, 3), (4,)), (2, 3, 5, 4)),
    (Conv2D((2, 3), (1, 1), WIDE), ((1, 5, 6, 3), (4, 3, 2, 3)), (1, 3, 2, 4)),
    (Conv2D((1, 1), (2, 4)), ((1, 5, 6, 1), (1, 3, 2, 1)), (1, 1, 2, 1)),
    (DepthwiseConv2D(2), ((1, 5, 6, 3), (1, 3, 2, 6), (6,)), (1, 3, 5, 6)),
    (DepthwiseConv2D(1, (2, 2), (1, 2), WIDE), ((1, 5, 6, 3), (1, 3, 2, 3)), (1, 3, 3, 3)),
    (FullyConnected(), ((2, 3, 4), (5, 12), (5,)), (2, 5)),
    (FullyConnected(), ((12,), (5, 4)), (3, 5)),
    (FullyConnected(keep_num_dims=True), ((2, 3, 4), (5, 4)), (2, 3, 5)),
    (TransposeConv2D((9, 7), (2, 1)), ((2, 4, 6, 3), (5, 3, 2, 3), (5,)), (2, 9, 7, 5)),
    (BatchMatMul(), ((2, 1, 3, 4), (5, 4, 6)), (2, 5, 3, 6)),
    (BatchMatMul(adj_x=True, adj_y=True), ((4, 3), (6, 4)), (3, 6)),
    (AveragePool2D((3, 2)), ((1, 5, 6, 3),), (1, 3, 5, 3)),
    (AveragePool2D((3, 2), (2, 2), Padding2D(1, 1, 0, 1)), ((1, 5, 6, 3),), (1, 3, 3, 3)),
    (MaxPool2D((5, 6)), ((1, 5, 6, 3),), (1, 1, 1, 3)),
    (L2Pool2D((3, 2)), ((1, 5, 6, 3),), (1, 3, 5, 3)),
    (Add(), ((2, 3, 4), (2, 3, 4)), (2, 3, 4)),
    (Sub(), ((2, 1, 4), (3, 1)), (2, 3, 4)),
    (Mul(), ((), (3, 0)), (3, 0)),
    (Reshape((6, 1)), ((2, 3),), (6, 1)),
    (Reshape(()), ((1, 1),), ()),
    (Pad(((0, 0), (1, 2))), ((2, 3),), (2, 6)),
    (Mean((1, 2)), ((2, 3, 4, 5),), (2, 5)),
    (Mean((0, 3), keep_dims=True), ((2, 3, 4, 5),), (1, 3, 4, 1)),
    (Sum((1,)), ((2, 3, 4),), (2, 4)),
    (ReduceMax((2,), keep_dims=True), ((2, 3, 4),), (2, 3, 1)),
    (ReduceMin((0, 1)), ((2, 3),), ()),
    (ReduceProd((0,)), ((2, 3),), (3,)),
    (ReduceAny((0,)), ((2, 3),), (3,)),
    (ReduceAll((1,)), ((2, 3),), (2,)),
    (CumSum(1), ((2, 3),), (2, 3)),
    (Concatenation(1), ((2, 3), (2, 0), (2, 4)), (2, 7)),
    (Softmax(), ((2, 3),), (2, 3)),
    (Logistic(), ((2, 3),), (2, 3)),
    (Tanh(), ((),), ()),
    (Relu(), ((2, 3),), (2, 3)),
    (Relu6(), ((2, 3),), (2, 3)),
    *((kind(), ((2, 3),), (2, 3)) for kind in ELEMENTARY),
    (Prelu(), ((2, 4, 3), (3,)), (2, 4, 3)),
    (Quantize(), ((2, 3),), (2, 3)),
    (ReadVariable(), ((2, 3),), (2, 3)),
]


@pytest.mark.parametrize(("op", "shapes", "expected"), GOOD)
def test_shape(op: Op, shapes: tuple[Shape, ...], expected: Shape) -> None:
    (result,) = infer(op, types(*shapes))
    assert result.shape == expected
    assert result.dtype is (I8 if isinstance(op, Quantize) else F32)
    assert result.quant is None


def test_every_operator_is_here() -> None:
    elementwise = {type(op) for op, _, _ in ELEMENTWISE}
    movers = {type(op) for op, _, _ in MOVERS}
    elsewhere = {
        ArgMax, ArgMin, AssignVariable, AverageOfSums, Cast, ChannelSums, Dequantize,
        DetectionPostProcess, EmbeddingLookup, EthosU, External, If, Svdf,
        UnidirectionalSequenceLstm, While,
    }
    found = {type(op) for op, _, _ in GOOD} | elsewhere | elementwise | movers
    # Inferred and compared with NumPy in tests/differential.
    compared = {type(case.op) for case in NUMPY_CASES.values()}
    own = {kind for kind in OPERATORS if kind in INFERENCES}
    assert found | compared >= own, "operators with rules of their own"


def test_sums_of_channels_are_int32_and_their_means_are_of_the_declared_type() -> None:
    (sums,) = infer(ChannelSums(), types((2, 5, 6, 3), dtype=I8))
    assert sums == TensorType(I32, (2, 1, 1, 3))
    assert infer(ChannelSums(), (*types((2, 5, 6, 3), dtype=I8), sums)) == (sums,)
    means = infer(AverageOfSums(30), (sums,), declared=(I8,))
    assert means == types((2, 1, 1, 3), dtype=I8)


def test_sums_of_channels_that_do_not_fit_are_refused() -> None:
    image, sums = types((2, 5, 6, 3), dtype=I8)[0], TensorType(I32, (2, 1, 1, 3))
    with pytest.raises(CrtExportError, match="the second input must be"):
        infer(ChannelSums(), (image, TensorType(I32, (1, 1, 1, 3))))
    with pytest.raises(CrtExportError, match="must have 4 dimensions"):
        infer(ChannelSums(), types((2, 3), dtype=I8))
    with pytest.raises(CrtExportError, match="expected int32 sums"):
        infer(AverageOfSums(30), types((2, 1, 1, 3), dtype=I8))
    with pytest.raises(CrtExportError, match="expected int32 sums"):
        infer(AverageOfSums(0), (sums,))


@pytest.mark.parametrize(
    ("data", "weights", "bias"),
    [(F32, F32, F32), (F32, I8, F32), (I8, I8, I32), (U8, U8, I32), (I16, I8, I64), (I16, I8, I32)],
)
def test_types_of_weighted_operators(data: DType, weights: DType, bias: DType) -> None:
    inputs = (TensorType(data, (1, 4)), TensorType(weights, (3, 4)), TensorType(bias, (3,)))
    assert infer(FullyConnected(), inputs) == (TensorType(data, (1, 3)),)


@pytest.mark.parametrize("dtype", [F16, I8, U8, I16, I32])
def test_dequantize_gives_float32(dtype: DType) -> None:
    assert infer(Dequantize(), types((3,), dtype=dtype)) == types((3,))


@pytest.mark.parametrize("dtype", [I8, U8, I16, I32])
def test_quantize_gives_what_the_model_says(dtype: DType) -> None:
    assert infer(Quantize(), types((3,)), declared=(dtype,)) == types((3,), dtype=dtype)


@pytest.mark.parametrize("dtype", [I32, I64])
@pytest.mark.parametrize("kind", [ArgMax, ArgMin])
def test_positions_have_the_type_that_the_model_says(
    kind: type[ArgMax | ArgMin], dtype: DType
) -> None:
    result = infer(kind(1), types((2, 3, 4)), declared=(dtype,))
    assert result == types((2, 4), dtype=dtype)


@pytest.mark.parametrize("dtype", [F32, I8, U8, I16, I32, I64, DType.BOOL])
def test_cast_gives_what_the_model_says(dtype: DType) -> None:
    assert infer(Cast(), types((3,), dtype=I8), declared=(dtype,)) == types((3,), dtype=dtype)


def test_slopes_must_not_make_the_input_larger() -> None:
    with pytest.raises(CrtExportError, match="broadcast"):
        infer(Prelu(), types((2, 1), (2, 3)))


def test_softmax_of_bytes_may_have_16_bits() -> None:
    assert infer(Softmax(), types((2, 3), dtype=I8), declared=(I16,)) == types((2, 3), dtype=I16)
    assert infer(Softmax(), types((2, 3)), declared=(I16,)) == types((2, 3))


def test_optional_input_may_be_none_or_missing() -> None:
    x, w = types((1, 4), (3, 4))
    assert infer(FullyConnected(), (x, w, None)) == infer(FullyConnected(), (x, w))


def test_arity() -> None:
    assert arity(Conv2D()) == (2, 3)
    assert arity(Concatenation(0)) == (1, None)


IMAGE = (1, 5, 6, 3)
BAD: list[tuple[Op, tuple[TensorType | None, ...], str]] = [
    (Add(), types((1,)), "expected 2 inputs, found 1"),
    (Relu(), types((1,), (1,)), "expected 1 input, found 2"),
    (Conv2D(), types(IMAGE), "expected 2 or 3 inputs, found 1"),
    (Concatenation(0), (), "expected at least 1 inputs, found 0"),
    (Add(), (None, *types((1,))), "input 0 is missing, and it is not optional"),
    (Concatenation(0), (*types((1,)), None), "input 1 is missing, and it is not optional"),
    (Conv2D(), types((5, 6, 3), (4, 3, 2, 3)), r"the input must have 4 .* float32\[5x6x3\]"),
    (Conv2D(), types(IMAGE, (4, 3, 2)), "the weights must have 4 dimensions"),
    (Conv2D(), types(IMAGE, (4, 3, 2, 2)), "3 channels and 4 filters are no groups .* 2 channels"),
    (Conv2D(), types(IMAGE, (4, 3, 2, 1)), "3 channels and 4 filters are no groups .* 1 channel"),
    (TransposeConv2D((9, 9)), types(IMAGE, (4, 3, 2, 2)), "3 channels, the weights have 2"),
    (TransposeConv2D((9, 0)), types(IMAGE, (4, 3, 2, 3)), "must be at least 1"),
    (BatchMatMul(), types((3, 4), (4,)), "both inputs must have 2 dimensions"),
    (BatchMatMul(), types((3, 4), (3, 4)), "3x4 and 3x4 matrices can't be multiplied"),
    (BatchMatMul(), types((2, 3, 4), (3, 4, 5)), "don't broadcast"),
    (EmbeddingLookup(), types((3,), (5, 4)), "the indices must be int32 in one dimension"),
    (EmbeddingLookup(), types((3,), (5,), dtype=DType.INT32), "rows in 2 dimensions or more"),
    (Conv2D(), types(IMAGE, (4, 6, 2, 3)), "a window of 6 rows doesn't fit into 5"),
    (Conv2D(dilation=(1, 6)), types(IMAGE, (4, 1, 2, 3)), "window of 7 columns doesn't fit into 6"),
    (Conv2D(stride=(0, 1)), types(IMAGE, (4, 1, 2, 3)), "must be at least 1"),
    (Conv2D(dilation=(1, 0)), types(IMAGE, (4, 1, 2, 3)), "must be at least 1"),
    (Conv2D(padding=Padding2D(top=-1)), types(IMAGE, (4, 1, 1, 3)), "padding .* at least 0"),
    (Conv2D(), types(IMAGE, (4, 0, 2, 3)), "must be at least 1"),
    (Conv2D(), types(IMAGE, (4, 1, 1, 3), (3,)), "bias must have 4 elements in one dimension"),
    (Conv2D(), types(IMAGE, (4, 1, 1, 3), (1, 4)), "bias must have 4 elements in one dimension"),
    (DepthwiseConv2D(), types(IMAGE, (2, 1, 1, 3)), "first dimension .* must be 1, found 2"),
    (DepthwiseConv2D(), types(IMAGE, (1, 1, 1, 6)), "3 input channels with depth multiplier 1"),
    (DepthwiseConv2D(0), types((1, 5, 6, 0), (1, 1, 1, 0)), "depth multiplier 0"),
    (FullyConnected(), types((1, 4), (3, 4, 1)), "the weights must have 2 dimensions"),
    (FullyConnected(), types((1, 5), (3, 4)), "5 elements are not rows of the weights' depth 4"),
    (FullyConnected(), types((1, 5), (3, 0)), "are not rows of the weights' depth 0"),
    (FullyConnected(True), types((4, 2), (3, 4)), "must end in the weights' depth 4"),
    (FullyConnected(True), types((), (3, 4)), "must end in the weights' depth 4"),
    (
        FullyConnected(),
        (*types((1, 4), dtype=I8), *types((3, 4))),
        "float32 weights don't go with int8 input",
    ),
    (
        FullyConnected(),
        types((1, 4), (3, 4), (3,), dtype=I8),
        "a int8 bias doesn't go with int8 input",
    ),
    (
        FullyConnected(),
        (*types((1, 4), (3, 4)), *types((3,), dtype=I32)),
        "a int32 bias doesn't go with float32 input",
    ),
    (AveragePool2D((2, 2), padding=Padding2D(bottom=2)), types(IMAGE), "without any cell"),
    (MaxPool2D((2, 2), padding=Padding2D(left=2)), types(IMAGE), "without any cell"),
    (MaxPool2D((6, 1)), types(IMAGE), "a window of 6 rows doesn't fit into 5"),
    (MaxPool2D((1, 1)), types((5, 6)), "the input must have 4 dimensions"),
    (Add(), (*types((3,)), *types((3,), dtype=I8)), "the inputs differ in type"),
    (Mul(), types((3, 2), (3,)), r"float32\[3x2\] and float32\[3\] don't broadcast"),
    (Reshape((7,)), types((2, 3)), r"has 6 elements and can't become \[7\]"),
    (Reshape((-2, -3)), types((2, 3)), r"can't become \[-2, -3\]"),
    (Pad(((0, 0),)), types((2, 3)), "1 pairs of paddings for"),
    (Pad(((0, -1),)), types((2,)), "paddings must not be negative"),
    (Mean(()), types((2, 3)), r"axes \[\] must be one or more of 0 to 1, ascending"),
    (Mean((1, 0)), types((2, 3)), r"axes \[1, 0\] must be"),
    (Mean((2,)), types((2, 3)), r"axes \[2\] must be"),
    (Mean((0,)), types((0, 3)), "the mean of no elements is undefined"),
    (ReduceMax((1,)), types((3, 0)), "the maximum of no elements is undefined"),
    (ArgMax(2), types((2, 3)), "axis 2 is not one of the 2"),
    (ArgMin(1), types((2, 0)), r"axis 1 of float32\[2x0\] has no elements to choose from"),
    (ArgMin(0), types((2, 3)), "positions are int32 or int64, not int8"),
    (CumSum(-1), types((2, 3)), "axis -1 is not one of the 2"),
    (Concatenation(2), types((2, 3)), "axis 2 is not one of the 2"),
    (Concatenation(0), types((2, 3), (2, 4)), "can't be joined along axis 0"),
    (Concatenation(0), (*types((3,)), *types((3,), dtype=I8)), "the inputs differ in type"),
    (Softmax(), types(()), "a scalar has no axis"),
    (Quantize(), types((3,), dtype=I64), "int64 can't be quantized to int8"),
    (Dequantize(), types((3,)), "float32 can't be dequantized"),
]


@pytest.mark.parametrize(("op", "inputs", "message"), BAD)
def test_what_does_not_fit(op: Op, inputs: tuple[TensorType | None, ...], message: str) -> None:
    with pytest.raises(CrtExportError, match=message):
        infer(op, inputs)


def test_quantize_to_a_real_number_is_refused() -> None:
    with pytest.raises(CrtExportError, match="float32 can't be quantized to float32"):
        infer(Quantize(), types((3,)), declared=(F32,))


def test_assigning_gives_nothing_and_wants_equal_types() -> None:
    assert infer(AssignVariable(), types((2, 3), (2, 3))) == ()
    with pytest.raises(CrtExportError, match="its new value float32"):
        infer(AssignVariable(), types((2, 3), (3, 2)))


def test_rows_of_a_table_may_become_real_on_the_way() -> None:
    indices, table = TensorType(DType.INT32, (3,)), TensorType(DType.INT8, (5, 4, 2))
    stored = infer(EmbeddingLookup(), (indices, table))
    real = infer(EmbeddingLookup(), (indices, table), declared=(F32,))
    assert (stored, real) == (types((3, 4, 2), dtype=DType.INT8), types((3, 4, 2)))
