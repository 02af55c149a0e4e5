"""Every rule of every operator refuses something: nodes of drawn networks, of which one tensor or
one number is changed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import Op
from crtexport.ir.verify import verify
from crtexport.lowering.operator_table import check, registered
from crtexport.lowering.registry import SCALAR_OF, Context, Rule
from crtexport.support.errors import CrtExportError
from tests.fuzz.drawn import PRODUCERS, drawn
from tests.fuzz.growing import Drawing
from tests.lowering.changed_nodes import Changed, changed

NETWORKS = 12
"""Of each operator."""

NOT_BROKEN = {f"Inputs and outputs must be of: {', '.join(dtype.value for dtype in SCALAR_OF)}."}
"""What only says that a tensor has any type."""


def problems(one: Changed) -> list[str]:
    """The rules that a node breaks; none where the graph is no graph, which is found before."""
    try:
        return check(Context(one.graph, one.node))
    except CrtExportError:
        return []
    except Exception:
        nodes = [one.node if n.outputs == one.node.outputs else n for n in one.graph.nodes]
        with pytest.raises(CrtExportError):
            verify(one.graph.with_nodes(tuple(nodes)))
        return []


def sentence(rule: Rule) -> str:
    return " ".join((rule.__doc__ or "").split())


KINDS = [kind for kind in PRODUCERS if (found := registered(kind)) and found.rules]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_rule_refuses_something(kind: type[Op]) -> None:
    lowering = registered(kind)
    assert lowering is not None
    unbroken = {sentence(rule) for rule in lowering.rules if sentence(rule) not in NOT_BROKEN}
    for number in range(NETWORKS):
        draw = Drawing(f"{kind.__name__} {number}")
        graph = replace(
            drawn(f"rules {number}", kind).graph, numerics=draw.choice(list(Numerics))
        )
        node = next(node for node in graph.nodes if isinstance(node.op, kind))
        for one in changed(graph, node, draw):
            for problem in problems(one):
                unbroken -= {rule for rule in unbroken if problem.startswith(f"{rule} (")}
        if not unbroken:
            return
    assert not unbroken
