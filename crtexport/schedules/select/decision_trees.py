"""Decision trees as nested comparisons, where these take less flash than tables and the code that
walks down them, or where speed matters more: they take about half of the instructions."""

from __future__ import annotations

from crtexport.lowering.ops import trees
from crtexport.lowering.registry import Context, Derived, InputTensor, Lowered
from crtexport.schedules.common.candidates import Candidate, single
from crtexport.schedules.select.cost_model import estimate, machine_for, stand_in
from crtexport.support.target import Target

_MOST = 1 << 12
"""Comparisons that are worth their code where speed matters."""
_FEW = 1 << 8
"""More never take less flash than tables, which have 4 to 14 bytes for each."""
_DEEPEST = 60
"""Compilers of C take 127 levels of blocks."""


def candidates(context: Context, target: Target, optimize: str) -> list[Candidate]:
    """Returns the variant of nested comparisons; none where tables are better."""
    fast = optimize == "speed"
    forest = trees.Forest.of(context)
    if forest.comparisons() > (_MOST if fast else _FEW) or forest.depth() > _DEEPEST:
        return []
    made = trees.comparisons(context)
    if not fast and _flash(context, made, target) > _flash(
        context, trees.tables(context), target
    ):
        return []
    return single("comparisons", made)


def _flash(context: Context, lowered: Lowered, target: Target) -> int:
    """Returns an estimate of the bytes of a kernel and its constants."""
    code = estimate(lowered.kernel, machine_for(target) or stand_in(target)).code
    tables = (arg for arg in lowered.args if isinstance(arg, Derived))
    inputs = (arg.position for arg in lowered.args if isinstance(arg, InputTensor))
    kept = sum(context.input(position).nbytes for position in inputs if position > 0)
    return code + kept + sum(table.data.nbytes for table in tables)
