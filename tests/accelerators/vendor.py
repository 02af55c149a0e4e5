"""A plugin as another package would bring one: its module's text, for a folder of its own."""

from __future__ import annotations

from pathlib import Path

PLUGIN = '''
import numpy as np

from crtexport.accelerators import Built, Constant, Match, Refusal
from crtexport.ir.modules import ExternalModule, ModuleFunction, SourceText
from crtexport.ir.ops import Relu, Slice
from crtexport.ir.types import ConstantRef, DType, TensorType

CODE = """#include <stdint.h>
#include <string.h>

int32_t NAME(const void *input, const void *table, void *output, void *scratch);
int32_t NAME(const void *input, const void *table, void *output, void *scratch)
{
    memcpy(scratch, input, LENGTH);
    for (int i = BEGIN; i < END; ++i) {
        ((int8_t *)output)[i - BEGIN] = ((const int8_t *)table)[((int8_t *)scratch)[i] + 128];
    }
    return 0;
}
"""


class Vendor:
    """Takes a Relu together with the Slice behind it."""

    def match(self, graph, node, target):
        first = graph.nodes[node]
        if not isinstance(first.op, Relu):
            return None
        behind = [n for n, other in enumerate(graph.nodes) if first.outputs[0] in other.inputs]
        if len(behind) != 1 or not isinstance(graph.nodes[behind[0]].op, Slice):
            return Refusal("a Slice must follow")
        second = graph.nodes[behind[0]]
        zero = graph.type(first.outputs[0]).quant.zero_point[0]
        table = np.maximum(np.arange(-128, 128), zero).astype(np.int8)
        constant = Constant("table", TensorType(DType.INT8, (256,)), ConstantRef.of(table))
        begin, length = second.op.begin[1], graph.type(second.outputs[0]).shape[1]
        return Match((node, behind[0]), (first.inputs[0], constant), second.outputs,
                     graph.type(first.inputs[0]).nbytes, (begin, begin + length))

    def build(self, matches, prefix):
        names = [f"{prefix}_{i}" for i in range(len(matches))]
        text = "".join(
            CODE.replace("NAME", name).replace("LENGTH", str(match.scratch))
            .replace("BEGIN", str(match.data[0])).replace("END", str(match.data[1]))
            for name, match in zip(names, matches)
        )
        module = ExternalModule("vendor", "c-source", (SourceText(f"{prefix}.c", text),),
                                tuple(map(ModuleFunction, names)))
        return Built(tuple(names), (module,))
'''


def install(folder: Path, code: str, *, name: str = "vendor", distribution: str = "vendor") -> None:
    """Puts ``code`` into ``folder`` as the package ``distribution``, whose entry point ``name`` is
    the module's class Vendor: what pip leaves in ``site-packages``."""
    module = f"{distribution}_plugin"
    (folder / f"{module}.py").write_text(code)
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[crtexport.accelerators]\n{name} = {module}:Vendor\n"
    )
