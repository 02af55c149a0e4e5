"""Checks that a model can be compiled as C for processors with 16-bit pointers and 16-bit ``int``.

Subscripts are ``ptrdiff_t`` there, at most 32767: arrays are no larger, and no kernel may compute
an index beyond, not even as an intermediate value.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crtexport.artifact import abi
from crtexport.artifact.model import Arg, Artifact, ConstantArg, ScalarArg, every_call
from crtexport.kir.language import Buffer, Scalar, Var
from crtexport.kir.verifier import KernelError, verify_narrow
from crtexport.support.errors import CrtExportError

Interval = tuple[int, int]

BITS = 16
LARGEST = (1 << (BITS - 1)) - 1
"""Bytes of the largest array, and the last index that ``ptrdiff_t`` represents."""


def check_narrow(artifact: Artifact) -> None:
    """Raises CrtExportError for an object that is too large for such a processor, naming it, and
    for programs of other devices."""
    for what, size in _arrays(artifact):
        if size > LARGEST:
            raise CrtExportError(
                f"it takes {size:,} bytes, and arrays have at most {LARGEST:,} where pointers "
                f"have {BITS} bits", location=(artifact.module, what),
                hint="the model is too large for this processor",
            )
    if artifact.images:
        raise CrtExportError(
            f"device programs can't be used by processors with pointers of {BITS} bits",
            location=artifact.module,
        )
    _check_kernels(artifact)


def _arrays(artifact: Artifact) -> Iterator[tuple[str, int]]:
    for tensor in artifact.inputs:
        yield f"input {tensor.name!r}", tensor.type.nbytes
    for tensor in artifact.outputs:
        yield f"output {tensor.name!r}", tensor.type.nbytes
    for constant in artifact.reached_constants:
        yield constant.comment or constant.symbol, constant.count * constant.dtype.itemsize
    for _, end, size in abi.workspaces(artifact):
        yield f"workspace{end.replace('_', ' in ')}", size
    for _, size in artifact.common.workspace.pools if artifact.common.workspace else ():
        yield "workspace of all models", size
    yield "state", artifact.state_size


def _check_kernels(artifact: Artifact) -> None:
    """Raises CrtExportError for a kernel whose indices aren't proven to fit, whatever calls it."""
    ranges: dict[str, dict[str, Interval]] = {}
    functions = {f.symbol: f for f in artifact.functions}
    for call in every_call(artifact.calls):
        if call.symbol in functions:
            kernel, own = functions[call.symbol].kernel, ranges.setdefault(call.symbol, {})
            params: tuple[Buffer | Var, ...] = (*kernel.buffers, *kernel.params)
            for param, arg in zip(params, call.args, strict=False):
                found = _known(artifact, param, arg)
                if found is not None:
                    low, high = own.get(param.name, found)
                    own[param.name] = min(low, found[0]), max(high, found[1])
    for symbol, own in ranges.items():
        kernel = functions[symbol].kernel
        try:
            verify_narrow(kernel, own, BITS)
        except KernelError as error:
            raise CrtExportError(
                f"indices that it computes may need more than {BITS} bits: {error}",
                location=(artifact.module, kernel.doc[0] if kernel.doc else symbol),
                hint="the layer is too large for processors with pointers of so many bits, or its "
                "positions come from data",
            ) from None


def _known(artifact: Artifact, param: Buffer | Var, arg: Arg) -> Interval | None:
    """Returns the interval of a scalar argument, or of the elements of a table that indices may be
    read from; None if unknown."""
    if isinstance(param, Var):
        if param.type.is_float or not isinstance(arg, ScalarArg):
            return None
        return int(arg.value), int(arg.value)
    if param.dtype is not Scalar.U16:
        return None
    if not isinstance(arg, ConstantArg):
        return 0, (1 << 16) - 1
    constant = next(c for c in artifact.constants if c.symbol == arg.symbol)
    values = np.frombuffer(constant.data.read(), "<u2")
    return (int(values.min()), int(values.max())) if values.size else None
