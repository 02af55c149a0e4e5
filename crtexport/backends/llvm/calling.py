"""Calling conventions of kernels. Arguments that are equal in all calls become constants of the
kernel.

LLVM does the same where it sees all calls. Since it is done before, a kernel has the same code in
any module, also without its callers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from crtexport.artifact.model import Arg, Artifact, ConstantArg, ScalarArg, every_call
from crtexport.backends.llvm.types import literal, value_type
from crtexport.kir.language import Const, Scalar
from crtexport.support.target import Target


class Calling(Struct, frozen=True):
    """The convention of a kernel. ``bound`` are the constant operands that replace parameters, by
    position, buffers first. ``convention`` is LLVM's name of the convention, or empty (C's) if code
    of other modules calls the kernel."""

    bound: Mapping[int, ConstantArg | ScalarArg] = field(default_factory=dict)
    convention: str = ""


class Callings:
    """The conventions of the kernels of ``artifact``. Kernels that other models call have C's
    convention, without bound operands."""

    def __init__(self, artifact: Artifact) -> None:
        self._calls: dict[str, list[tuple[Arg, ...]]] = {}
        for call in every_call(artifact.calls):
            self._calls.setdefault(call.symbol, []).append(call.args)
        self._common = artifact.common.lent | artifact.common.borrowed
        self._found = {f.symbol: self._calling(f.symbol) for f in artifact.functions}

    def _calling(self, symbol: str) -> Calling:
        if symbol in self._common:
            return Calling()
        calls = self._calls.get(symbol, [()])
        return Calling({
            position: arg for position, arg in enumerate(calls[0])
            if isinstance(arg, ConstantArg | ScalarArg)
            # Compared as text, since 0.0 == -0.0.
            and all(repr(other[position : position + 1]) == repr((arg,)) for other in calls)
        }, "fastcc ")

    def of(self, symbol: str) -> Calling:
        """Returns the convention of a kernel."""
        return self._found[symbol]

    def constants(self, symbols: Iterable[str]) -> frozenset[str]:
        """Returns the constants that kernels refer to without a parameter."""
        return frozenset(
            arg.symbol for symbol in symbols for arg in self.of(symbol).bound.values()
            if isinstance(arg, ConstantArg)
        )

    def alone(self, symbol: str) -> bool:
        """Returns whether a kernel compiles to the same code whatever calls it. That doesn't hold
        for kernels that are called more than once: LLVM may specialize them for a call."""
        return len(self._calls.get(symbol, [])) <= 1 and symbol not in self._common


def bound_operand(arg: ConstantArg | ScalarArg, target: Target) -> str:
    """Returns the operand, without its type, that can replace ``arg`` in any function."""
    if isinstance(arg, ScalarArg):
        return literal(Const(arg.value, arg.type))
    if not arg.offset:
        return f"@{arg.symbol}"
    position = f"{value_type(Scalar.INDEX, target)} {arg.offset}"
    return f"getelementptr inbounds (i8, ptr @{arg.symbol}, {position})"
