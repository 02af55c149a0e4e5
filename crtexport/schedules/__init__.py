"""How kernels are shaped for an instruction set. Meaning never changes here, only speed and size.

:func:`schedule` chooses by the target's features; a faster form of an operator on some machine is
one more module of this package.
"""

from __future__ import annotations

from crtexport.kernels.ir import Kernel
from crtexport.schedules import generic
from crtexport.target import Target


def schedule(kernel: Kernel, target: Target, optimize: str) -> Kernel:
    """``kernel`` as it should run on ``target``; ``optimize`` is size, balanced or speed."""
    if generic.vectorizes(target) or optimize == "size":
        return kernel
    return generic.unroll_inner_loops(kernel, 4 if optimize == "balanced" else 8)
