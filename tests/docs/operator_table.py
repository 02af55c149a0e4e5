"""The documentation's table of supported operators, from what the program and its tests know.

Operators and rules are those of the registry. Element types are what rules list, where they do as
data, and else what the differential networks have; these also show which operator of TensorFlow
Lite becomes which of ours; for ONNX onnx's node tests show it.
"""

from __future__ import annotations

import functools
import inspect
import re
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import tflite

from crtexport.importers import load
from crtexport.importers.crtjson.attributes import OPERATORS
from crtexport.importers.tflite.operators import Decoder
from crtexport.importers.tflite.schema import constant_names
from crtexport.importers.tflite.tflite_ops import DECODERS
from crtexport.ir.graph import Graph, Node
from crtexport.ir.infer import infer
from crtexport.ir.ops import Op
from crtexport.ir.types import DType
from crtexport.lowering.operator_table import registered
from crtexport.lowering.registry import Rule
from crtexport.lowering.rules import SameTypes
from tests.differential.cases import CASES, PAIRS, SeededDraw
from tests.differential.numpy_cases import NUMPY_CASES
from tests.docs.onnx_table import onnx_facts, onnx_lists

SEEDS = range(12)

Signature = tuple[tuple[DType, ...], tuple[DType, ...]]
"""Element types of inputs and of outputs."""

_USUAL = (
    DType.FLOAT32, DType.INT8, DType.UINT8, DType.INT16, DType.INT32, DType.INT64, DType.BOOL,
)
_ORDER = {
    dtype: number for number, dtype in enumerate((*_USUAL, *(d for d in DType if d not in _USUAL)))
}
_TENSORFLOW_LITE = re.compile(r"operator \d+ \((\w+)\)")


@dataclass
class Seen:
    """The facts that the networks of the tests show of one operator."""

    names: set[str] = field(default_factory=set)
    signatures: set[Signature] = field(default_factory=set)


@functools.cache
def operator_table() -> str:
    """Markdown: a row for each operator of model.json, in its order."""
    seen = _seen()
    _add_unseen_names(seen)
    same = onnx_facts().same
    rows = [
        "| operator | TensorFlow Lite | ONNX | element types | rules |", "|---|---|---|---|---|",
    ]
    for name, kind in OPERATORS.items():
        lowering = registered(kind)
        if lowering is None:  # runs graphs and computes nothing
            continue
        rules = lowering.rules
        names = ", ".join(sorted(seen[kind].names)) or "—"
        listed = {s for rule in rules for s in getattr(rule, "own_signatures", ())}
        types = _types(rules, seen[kind].signatures | listed)
        sentences = "<br>".join(
            _sentence(rule) for rule in rules if not isinstance(rule, SameTypes)
        )
        theirs = ", ".join(sorted(same.get(kind, ()))) or "—"
        rows.append(f"| {name} | {names} | {theirs} | {types} | {sentences} |")
    return "\n".join([*rows, "", onnx_lists()])


def _seen() -> dict[type[Op], Seen]:
    found: dict[type[Op], Seen] = defaultdict(Seen)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        for name, dtype in PAIRS:
            for seed in SEEDS:
                path.write_bytes(CASES[name](SeededDraw(seed), dtype).content)
                graph = load(path)
                for node in graph.nodes:
                    origin = _TENSORFLOW_LITE.match(node.origin)
                    if origin is not None:
                        found[type(node.op)].names.add(origin[1])
                    found[type(node.op)].signatures.add(_signature(graph, node))
    for one in NUMPY_CASES.values():
        results = infer(one.op, one.inputs, declared=(one.result,))
        found[type(one.op)].signatures.add((
            tuple(t.dtype for t in one.inputs), tuple(t.dtype for t in results)
        ))
    return found


def _signature(graph: Graph, node: Node) -> Signature:
    return (
        tuple(graph.type(t).dtype for t in node.inputs if t is not None),
        tuple(graph.type(t).dtype for t in node.outputs),
    )


def _add_unseen_names(seen: dict[type[Op], Seen]) -> None:
    """Operators of TensorFlow Lite that no network of the tests has: by what decoders mention."""
    titles = constant_names(tflite.BuiltinOperator)
    known = {name for entry in seen.values() for name in entry.names}
    for code, decoder in DECODERS.items():
        if titles[code] in known:
            continue
        for kind in _mentioned(decoder):
            seen[kind].names.add(titles[code])


def _mentioned(decoder: Decoder) -> list[type[Op]]:
    variables = inspect.getclosurevars(decoder)
    values = [*variables.nonlocals.values(), *variables.globals.values()]
    kinds = {v if isinstance(v, type) else type(v) for v in values}
    attributes = variables.unbound  # such as ops.Reshape
    return [
        kind for name, kind in OPERATORS.items()
        if (kind in kinds or name in attributes) and registered(kind)
    ]


def _types(rules: tuple[Rule, ...], signatures: set[Signature]) -> str:
    for rule in rules:
        if isinstance(rule, SameTypes):
            return ", ".join(d.value for d in sorted(rule.allowed, key=_ORDER.__getitem__))
    whole = {s for s in signatures if not any(_begins(s, other) for other in signatures)}
    alike: dict[tuple[DType, ...], set[DType]] = defaultdict(set)
    texts = []
    for inputs, outputs in whole:
        if len(set(inputs)) == 1:
            alike[outputs if {*outputs} - {*inputs} else ()].add(inputs[0])
        else:
            texts.append((_places(inputs), f"{_product(inputs)}{_arrow(outputs)}"))
    for outputs, found in alike.items():
        inputs = tuple(sorted(found, key=_ORDER.__getitem__))
        # What is of one type alone comes first.
        place = [] if not outputs else _places(inputs)
        texts.append((place, f"{', '.join(d.value for d in inputs)}{_arrow(outputs)}"))
    return "; ".join(text for _, text in sorted(texts))


def _places(types: tuple[DType, ...]) -> list[int]:
    return [_ORDER[d] for d in types]


def _product(types: tuple[DType, ...]) -> str:
    return " × ".join(d.value for d in types)


def _arrow(outputs: tuple[DType, ...]) -> str:
    return f" → {_product(outputs)}" if outputs else ""


def _begins(short: Signature, long: Signature) -> bool:
    """Returns whether ``long`` has the inputs of ``short`` and optional ones after them."""
    count = len(short[0])
    return len(long[0]) > count and long[0][:count] == short[0] and long[1] == short[1]


def _sentence(rule: Rule) -> str:
    text = " ".join((rule.__doc__ or "").split()).replace("|", "\\|")
    return text if text.endswith(".") else f"{text}."
