"""The C file that calls CMSIS-NN, one function for each kind of call with its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from crtexport.accelerators.cmsis_nn.layers import LibraryCall
from crtexport.accelerators.plugin import Match
from crtexport.backends.c.literals import comment_text
from crtexport.ir.modules import ModuleLibrary
from crtexport.support import resources

_TEMPLATE = "accelerators/cmsis_nn.c.j2"

LIBRARY = ModuleLibrary(
    name="CMSIS-NN", version=">=7.0", url="https://github.com/ARM-software/CMSIS-NN",
    variable="CMSIS_NN", include=("Include",),
    sources=(
        "Source/ConvolutionFunctions/*_s8*.c", "Source/FullyConnectedFunctions/*_s8.c",
        "Source/PoolingFunctions/*_s8.c", "Source/SoftmaxFunctions/*_s8.c",
        "Source/TransposeFunctions/*_s8.c", "Source/NNSupportFunctions/*s8*.c",
        "Source/NNSupportFunctions/arm_q7_*.c",
    ),
)
"""The library's headers and sources, below its folder."""


def write_source(matches: Sequence[Match], prefix: str) -> tuple[tuple[str, ...], str]:
    """Returns the name of each match's function, and the file with all of them; equal ones are one.
    """
    functions: dict[LibraryCall, tuple[str, list[str]]] = {}
    names: list[str] = []
    for match in matches:
        if not isinstance(match.data, LibraryCall):
            raise TypeError(match.data)
        key = replace(match.data, layer="")
        if key not in functions:
            functions[key] = (f"{prefix}_{key.kind}_{len(functions)}", [])
        functions[key][1].append(match.data.layer)
        names.append(functions[key][0])
    text = resources.environment().get_template(_TEMPLATE).render(
        prefix=prefix,
        functions=[
            {"name": name, "kind": call.kind, "inputs": call.inputs, "scratch": call.scratch,
             "layers": [comment_text(layer) for layer in layers], **dict(call.numbers)}
            for call, (name, layers) in functions.items()
        ],
    )
    return tuple(names), text

