"""How TensorFlow Lite writes operators on variables."""

from __future__ import annotations

from collections.abc import Mapping

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import AssignVariable, Op, ReadVariable
from crtexport.simulation.tflite_form import Form, Former


def _plain(code: str) -> Former:
    def former(graph: Graph, node: Node) -> Form:
        del graph, node
        return Form(code)

    return former


FORMERS: Mapping[type[Op], Former] = {
    ReadVariable: _plain("READ_VARIABLE"),
    AssignVariable: _plain("ASSIGN_VARIABLE"),
}
