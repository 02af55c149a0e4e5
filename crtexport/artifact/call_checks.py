"""Checks that every call of an artifact fits the function that it calls, for all backends."""

from __future__ import annotations

from collections.abc import Sequence

from crtexport.artifact.contexts import check_externals
from crtexport.artifact.model import (
    Arg,
    Artifact,
    ConstantArg,
    ExternalFunction,
    FunctionCall,
    InputArg,
    ScalarArg,
    every_call,
)
from crtexport.kir.language import Buffer, Scalar, Var
from crtexport.support.errors import CrtExportError


def check_calls(artifact: Artifact) -> dict[str, ExternalFunction]:
    """Returns the external functions by symbol.

    Raises CrtExportError as :func:`check_externals` does, if arguments don't fit the kernel or the
    external function, and if an input or a constant would be written.
    """
    externals = check_externals(artifact)
    kernels = {function.symbol: function.kernel for function in artifact.functions}
    for call in every_call(artifact.calls):
        problem = ""
        if (external := externals.get(call.symbol)) is not None:
            problem = _mismatch(_parameters(external, call), call.args)
        elif (kernel := kernels.get(call.symbol)) is not None:
            problem = _mismatch((*kernel.buffers, *kernel.params), call.args)
        else:
            problem = "it is not defined"
        if problem:
            raise CrtExportError(
                f"the call of {call.symbol!r} is wrong: {problem}", location=artifact.module
            )
    return externals


def _parameters(function: ExternalFunction, call: FunctionCall) -> list[Buffer]:
    if function.commands:  # their command streams determine what is written
        return [Buffer(f"argument{i}", Scalar.U8, 1) for i in range(len(call.sizes))]
    results = range(function.inputs, function.inputs + function.outputs)
    return [
        Buffer(f"argument{i}", Scalar.U8, 1, writable=i in results)
        for i in range(function.inputs + function.outputs + function.constants)
    ]


def _mismatch(parameters: Sequence[Buffer | Var], args: Sequence[Arg]) -> str:
    """Returns why the arguments don't fit the parameters; "" if they do."""
    if len(parameters) != len(args):
        return f"it takes {len(parameters)} arguments, not {len(args)}"
    for parameter, arg in zip(parameters, args, strict=True):
        if isinstance(arg, ScalarArg):
            if not isinstance(parameter, Var) or parameter.type is not arg.type:
                return f"{parameter.name} is not a {arg.type.value}"
        elif not isinstance(parameter, Buffer):
            return f"{parameter.name} is not a pointer"
        elif parameter.writable and isinstance(arg, InputArg | ConstantArg):
            return f"{parameter.name} would be written, but is read-only memory"
    return ""
