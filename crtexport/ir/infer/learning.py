"""Operators of classical machine learning."""

from __future__ import annotations

from crtexport.ir.infer.base import InputTypes, infers
from crtexport.ir.ops import PairwiseCoupling, SquaredDistance, TreeEnsemble
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError


def _rows(type_: TensorType, role: str) -> tuple[int, int]:
    if type_.dtype is not DType.FLOAT32 or len(type_.shape) != 2 or not type_.shape[1]:
        raise CrtExportError(f"{role} must be a float32 matrix, found {type_}")
    return type_.shape[0], type_.shape[1]


@infers(TreeEnsemble, required=6)
def trees(_op: TreeEnsemble, inputs: InputTypes) -> tuple[TensorType, ...]:
    rows, _ = _rows(inputs[0], "the features")
    leaves, targets = _rows(inputs[5], "the leaves")
    features, thresholds, children, roots = (inputs[i] for i in range(1, 5))
    if len(features.shape) != 1 or not features.elements or not leaves or not roots.elements:
        raise CrtExportError("there must be inner nodes, leaves and roots")
    if thresholds != TensorType(DType.FLOAT32, features.shape):
        raise CrtExportError(f"thresholds {thresholds} for {features.elements} nodes")
    if children.shape != (features.elements, 2) or len(roots.shape) != 1:
        raise CrtExportError(f"children {children} of {features.elements} nodes, roots {roots}")
    for table in (features, children, roots):
        if table.dtype not in (DType.INT16, DType.INT32):
            raise CrtExportError(f"tables of nodes must be int16 or int32, found {table}")
    return (TensorType(DType.FLOAT32, (rows, targets)),)


@infers(SquaredDistance, required=2)
def squared_distance(_op: SquaredDistance, inputs: InputTypes) -> tuple[TensorType, ...]:
    rows, width = _rows(inputs[0], "the rows")
    centers, depth = _rows(inputs[1], "the centers")
    if width != depth:
        raise CrtExportError(f"{inputs[0]} and {inputs[1]} have rows of {width} and {depth}")
    return (TensorType(DType.FLOAT32, (rows, centers)),)


@infers(PairwiseCoupling, required=1)
def pairwise_coupling(_op: PairwiseCoupling, inputs: InputTypes) -> tuple[TensorType, ...]:
    dtype, shape = inputs[0].dtype, inputs[0].shape
    if dtype is not DType.FLOAT32 or len(shape) != 3 or shape[1] != shape[2] or shape[1] < 2:
        raise CrtExportError(f"each row must have a square float32 matrix, found {inputs[0]}")
    return (TensorType(DType.FLOAT32, shape[:2]),)
