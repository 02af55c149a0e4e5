"""The part of TensorFlow Lite's schema that is read: its enumerations and its tables.

Names and numbers are those of ``tensorflow/lite/schema/schema.fbs``, of version 3; a test compares
them with the accessors that are generated from it.
"""

from __future__ import annotations

from crtexport.importers.tflite.flatbuffer import (
    Table,
    flag,
    integer,
    numbers,
    octets,
    real,
    span,
    table,
    tables,
    text,
    union,
)


def constant_names(kind: type) -> dict[int, str]:
    """Returns the names of an enumeration's values."""
    return {
        value: name for name, value in vars(kind).items()
        if isinstance(value, int) and not name.startswith("_")  # a class knows its line, too
    }


def any_name(enumeration: str, value: int) -> str | None:
    """Returns the name of any enumeration's value in the whole schema: for messages only, as it is
    slow."""
    import tflite  # noqa: PLC0415

    return constant_names(getattr(tflite, enumeration)).get(value)


# -- enumerations


class BuiltinOperator:
    """The codes of the operators that can be imported."""

    ADD = 0
    AVERAGE_POOL_2D = 1
    CONCATENATION = 2
    CONV_2D = 3
    DEPTHWISE_CONV_2D = 4
    DEPTH_TO_SPACE = 5
    DEQUANTIZE = 6
    EMBEDDING_LOOKUP = 7
    FLOOR = 8
    FULLY_CONNECTED = 9
    L2_NORMALIZATION = 11
    L2_POOL_2D = 12
    LOGISTIC = 14
    MAX_POOL_2D = 17
    MUL = 18
    RELU = 19
    RELU_N1_TO_1 = 20
    RELU6 = 21
    RESHAPE = 22
    RESIZE_BILINEAR = 23
    SOFTMAX = 25
    SPACE_TO_DEPTH = 26
    SVDF = 27
    TANH = 28
    CUSTOM = 32
    PAD = 34
    GATHER = 36
    BATCH_TO_SPACE_ND = 37
    SPACE_TO_BATCH_ND = 38
    TRANSPOSE = 39
    MEAN = 40
    SUB = 41
    DIV = 42
    SQUEEZE = 43
    UNIDIRECTIONAL_SEQUENCE_LSTM = 44
    STRIDED_SLICE = 45
    EXP = 47
    TOPK_V2 = 48
    SPLIT = 49
    LOG_SOFTMAX = 50
    CAST = 53
    PRELU = 54
    MAXIMUM = 55
    ARG_MAX = 56
    MINIMUM = 57
    LESS = 58
    NEG = 59
    PADV2 = 60
    GREATER = 61
    GREATER_EQUAL = 62
    LESS_EQUAL = 63
    SELECT = 64
    SLICE = 65
    SIN = 66
    TRANSPOSE_CONV = 67
    TILE = 69
    EXPAND_DIMS = 70
    EQUAL = 71
    NOT_EQUAL = 72
    LOG = 73
    SUM = 74
    SQRT = 75
    RSQRT = 76
    SHAPE = 77
    POW = 78
    ARG_MIN = 79
    REDUCE_PROD = 81
    REDUCE_MAX = 82
    PACK = 83
    LOGICAL_OR = 84
    LOGICAL_AND = 86
    LOGICAL_NOT = 87
    UNPACK = 88
    REDUCE_MIN = 89
    FLOOR_DIV = 90
    REDUCE_ANY = 91
    SQUARE = 92
    ZEROS_LIKE = 93
    FILL = 94
    FLOOR_MOD = 95
    RANGE = 96
    RESIZE_NEAREST_NEIGHBOR = 97
    LEAKY_RELU = 98
    SQUARED_DIFFERENCE = 99
    MIRROR_PAD = 100
    ABS = 101
    SPLIT_V = 102
    CEIL = 104
    REVERSE_V2 = 105
    ADD_N = 106
    GATHER_ND = 107
    COS = 108
    RANK = 110
    ELU = 111
    QUANTIZE = 114
    ROUND = 116
    HARD_SWISH = 117
    IF = 118
    WHILE = 119
    SELECT_V2 = 123
    DENSIFY = 124
    BATCH_MATMUL = 126
    CUMSUM = 128
    CALL_ONCE = 129
    BROADCAST_TO = 130
    RFFT2D = 131
    IMAG = 133
    REAL = 134
    COMPLEX_ABS = 135
    REDUCE_ALL = 140
    VAR_HANDLE = 142
    READ_VARIABLE = 143
    ASSIGN_VARIABLE = 144
    BROADCAST_ARGS = 145
    GELU = 150
    DYNAMIC_UPDATE_SLICE = 151


class TensorType:
    FLOAT32 = 0
    FLOAT16 = 1
    INT32 = 2
    UINT8 = 3
    INT64 = 4
    STRING = 5
    BOOL = 6
    INT16 = 7
    COMPLEX64 = 8
    INT8 = 9
    FLOAT64 = 10
    COMPLEX128 = 11
    UINT64 = 12
    RESOURCE = 13
    VARIANT = 14
    UINT32 = 15
    UINT16 = 16
    INT4 = 17
    BFLOAT16 = 18


class ActivationFunctionType:
    NONE = 0
    RELU = 1
    RELU_N1_TO_1 = 2
    RELU6 = 3
    TANH = 4
    SIGN_BIT = 5


class Padding:
    SAME = 0
    VALID = 1


class FullyConnectedOptionsWeightsFormat:
    DEFAULT = 0
    SHUFFLED4x16INT8 = 1


class MirrorPadMode:
    REFLECT = 0
    SYMMETRIC = 1


class QuantizationDetails:
    NONE = 0
    CustomQuantization = 1


# -- the file


class OperatorCode(Table):
    deprecated_builtin_code = integer(0, "b")
    custom_code = text(1)
    builtin_code = integer(3)


class QuantizationParameters(Table):
    scale = numbers(2, "f")
    zero_point = numbers(3, "q")
    details_type = integer(4, "B")
    quantized_dimension = integer(6)


class Tensor(Table):
    shape = numbers(0)
    type = integer(1, "b")
    buffer = integer(2, "I")
    name = text(3)
    quantization = table(4, QuantizationParameters)
    is_variable = flag(5)
    sparsity = union(6)  # see the module ``sparse``
    shape_signature = numbers(7)


class Operator(Table):
    opcode_index = integer(0, "I")
    inputs = numbers(1)
    outputs = numbers(2)
    builtin_options_type = integer(3, "B")
    builtin_options = union(4)
    custom_options = octets(5)
    intermediates = numbers(8)


class SubGraph(Table):
    tensors = tables(0, Tensor)
    inputs = numbers(1)
    outputs = numbers(2)
    operators = tables(3, Operator)
    name = text(4)


class Buffer(Table):
    data = octets(0)
    place = span(0)  # of the same data
    offset = integer(1, "Q")
    size = integer(2, "Q")


class Metadata(Table):
    name = text(0)
    buffer = integer(1, "I")


class TensorMap(Table):
    name = text(0)
    tensor_index = integer(1, "I")


class SignatureDef(Table):
    inputs = tables(0, TensorMap)
    outputs = tables(1, TensorMap)
    subgraph_index = integer(4, "I")


class Model(Table):
    version = integer(0, "I")
    operator_codes = tables(1, OperatorCode)
    subgraphs = tables(2, SubGraph)
    buffers = tables(4, Buffer)
    metadata = tables(6, Metadata)
    signature_defs = tables(7, SignatureDef)


# -- options of operators


class AddOptions(Table):
    UNION = 11
    fused_activation_function = integer(0, "b")
    pot_scale_int16 = flag(1, absent=True)


class SubOptions(Table):
    UNION = 28
    fused_activation_function = integer(0, "b")
    pot_scale_int16 = flag(1, absent=True)


class MulOptions(Table):
    UNION = 21
    fused_activation_function = integer(0, "b")


class DivOptions(Table):
    UNION = 29
    fused_activation_function = integer(0, "b")


class Conv2DOptions(Table):
    UNION = 1
    padding = integer(0, "b")
    stride_w = integer(1)
    stride_h = integer(2)
    fused_activation_function = integer(3, "b")
    dilation_w_factor = integer(4, absent=1)
    dilation_h_factor = integer(5, absent=1)


class DepthwiseConv2DOptions(Table):
    UNION = 2
    padding = integer(0, "b")
    stride_w = integer(1)
    stride_h = integer(2)
    fused_activation_function = integer(4, "b")
    dilation_w_factor = integer(5, absent=1)
    dilation_h_factor = integer(6, absent=1)


class TransposeConvOptions(Table):
    UNION = 49
    padding = integer(0, "b")
    stride_w = integer(1)
    stride_h = integer(2)
    fused_activation_function = integer(3, "b")


class FullyConnectedOptions(Table):
    UNION = 8
    fused_activation_function = integer(0, "b")
    weights_format = integer(1, "b")
    keep_num_dims = flag(2)


class BatchMatMulOptions(Table):
    UNION = 101
    adj_x = flag(0)
    adj_y = flag(1)


class Pool2DOptions(Table):
    UNION = 5
    padding = integer(0, "b")
    stride_w = integer(1)
    stride_h = integer(2)
    filter_width = integer(3)
    filter_height = integer(4)
    fused_activation_function = integer(5, "b")


class ConcatenationOptions(Table):
    UNION = 10
    axis = integer(0)
    fused_activation_function = integer(1, "b")


class SoftmaxOptions(Table):
    UNION = 9
    beta = real(0)


class SVDFOptions(Table):
    UNION = 6
    rank = integer(0)
    fused_activation_function = integer(1, "b")


class UnidirectionalSequenceLSTMOptions(Table):
    UNION = 71
    fused_activation_function = integer(0, "b")
    cell_clip = real(1)
    time_major = flag(3)


class ReducerOptions(Table):
    UNION = 27
    keep_dims = flag(0)


class CumsumOptions(Table):
    UNION = 102
    exclusive = flag(0)
    reverse = flag(1)


class StridedSliceOptions(Table):
    UNION = 32
    begin_mask = integer(0)
    end_mask = integer(1)
    ellipsis_mask = integer(2)
    new_axis_mask = integer(3)
    shrink_axis_mask = integer(4)
    offset = flag(5)


class PackOptions(Table):
    UNION = 59
    axis = integer(1)


class UnpackOptions(Table):
    UNION = 64
    axis = integer(1)


class MirrorPadOptions(Table):
    UNION = 77
    mode = integer(0, "b")


class SpaceToDepthOptions(Table):
    UNION = 19
    block_size = integer(0)


class DepthToSpaceOptions(Table):
    UNION = 94
    block_size = integer(0)


class GatherOptions(Table):
    UNION = 23
    axis = integer(0)
    batch_dims = integer(1)


class ResizeBilinearOptions(Table):
    UNION = 15
    align_corners = flag(2)
    half_pixel_centers = flag(3)


class ResizeNearestNeighborOptions(Table):
    UNION = 74
    align_corners = flag(0)
    half_pixel_centers = flag(1)


class LeakyReluOptions(Table):
    UNION = 75
    alpha = real(0)


class GeluOptions(Table):
    UNION = 116
    approximate = flag(0)


class L2NormOptions(Table):
    UNION = 12
    fused_activation_function = integer(0, "b")


class ShapeOptions(Table):
    UNION = 55
    out_type = integer(0, "b")


class IfOptions(Table):
    UNION = 92
    then_subgraph_index = integer(0)
    else_subgraph_index = integer(1)


class WhileOptions(Table):
    UNION = 93
    cond_subgraph_index = integer(0)
    body_subgraph_index = integer(1)


class VarHandleOptions(Table):
    UNION = 111
    container = text(0)
    shared_name = text(1)


class CallOnceOptions(Table):
    UNION = 103
    init_subgraph_index = integer(0)
