"""One function for layers whose kernels are alike but for numbers: the numbers become parameters.

Whatever differs between them, a multiplier, a zero point, the extent of a loop, is passed by each
call. What that costs in instructions depends on where a number stands, so ``optimize`` decides
which may differ: none for speed; for size any but divisors; balanced, numbers that are computed
with and the extents of outer loops, but nothing that addresses or innermost loops are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from crtexport.kernels.ir import Buffer, Const, Expr, For, If, Kernel, Let, Local, Scalar, Var
from crtexport.kernels.rebuild import Place, rebuild
from crtexport.kernels.text import dump

_NUMBERS = (Scalar.I32, Scalar.U32, Scalar.I64, Scalar.INDEX)
MOST_PARAMETERS = {"speed": 0, "balanced": 8, "size": 64}


@dataclass(frozen=True)
class Sharing:
    """A kernel and, for one that uses it, the values of its parameters."""

    kernel: Kernel
    values: tuple[int, ...] = ()


def share(kernels: Sequence[Kernel], optimize: str) -> list[Sharing]:
    """What each of ``kernels``, which have no parameters, is called as.

    Those that are equal in text but for numbers that may differ get one kernel; with the values
    in the places of its parameters it is the one given, but for larger buffers and fewer promises.
    """
    shared = [Sharing(kernel) for kernel in kernels]
    if not MOST_PARAMETERS[optimize]:
        return shared
    groups: dict[str, list[int]] = {}
    for number, kernel in enumerate(kernels):
        groups.setdefault(_skeleton(kernel, optimize), []).append(number)
    for members in groups.values():
        together = _merged([kernels[number] for number in members], optimize)
        if together is not None:
            for number, sharing in zip(members, together, strict=True):
                shared[number] = sharing
    return shared


def _may_differ(constant: Const, place: Place, optimize: str) -> bool:
    if constant.type not in _NUMBERS or place is Place.DIVISOR:
        return False
    if optimize == "size":
        return True
    return place is Place.EXTENT or constant.type is not Scalar.INDEX


def _skeleton(kernel: Kernel, optimize: str) -> str:
    """The text of a kernel without the numbers that may differ, and without sizes of buffers."""

    def hidden(constant: Const, place: Place) -> Expr:
        if not _may_differ(constant, place, optimize):
            return constant
        return Var("number", constant.type)

    bare = {b.name: replace(b, size=0, align=1, noalias=False) for b in kernel.buffers}
    return dump(replace(rebuild(kernel, hidden, bare), doc=()))


def _merged(kernels: list[Kernel], optimize: str) -> list[Sharing] | None:
    """One kernel for all, with a parameter for each number that they differ in; None where they
    don't differ, or in too many."""
    if len({dump(replace(kernel, doc=())) for kernel in kernels}) < 2:
        return None
    columns = list(zip(*(_numbers(kernel, optimize) for kernel in kernels), strict=True))
    taken = _names(kernels[0])
    parameters: dict[tuple[Scalar, tuple[int, ...]], Var] = {}
    for column in columns:
        values = tuple(int(constant.value) for constant in column)
        if len(set(values)) > 1:
            key = column[0].type, values
            parameters.setdefault(key, Var(_name(len(parameters), taken), key[0]))
    if len(parameters) > MOST_PARAMETERS[optimize]:
        return None
    places = iter(columns)

    def replaced(constant: Const, place: Place) -> Expr:
        if not _may_differ(constant, place, optimize):
            return constant
        column = next(places)
        values = tuple(int(other.value) for other in column)
        return parameters.get((constant.type, values), constant)

    buffers = {
        own.name: _common([kernel.buffers[i] for kernel in kernels])
        for i, own in enumerate(kernels[0].buffers)
    }
    kernel = replace(
        rebuild(kernels[0], replaced, buffers), params=tuple(parameters.values()), doc=()
    )
    given = [values for _, values in parameters]
    return [
        Sharing(kernel, tuple(values[number] for values in given))
        for number in range(len(kernels))
    ]


def _numbers(kernel: Kernel, optimize: str) -> list[Const]:
    """The constants that may differ, in the order of the text."""
    found: list[Const] = []

    def listed(constant: Const, place: Place) -> Expr:
        if _may_differ(constant, place, optimize):
            found.append(constant)
        return constant

    rebuild(kernel, listed, {b.name: b for b in kernel.buffers})
    return found


def _common(buffers: list[Buffer]) -> Buffer:
    """What may be promised of all."""
    return replace(
        buffers[0], size=max(b.size for b in buffers), align=min(b.align for b in buffers),
        noalias=all(b.noalias for b in buffers),
    )


def _names(kernel: Kernel) -> set[str]:
    """Every name that ``kernel`` uses."""
    names = {buffer.name for buffer in kernel.buffers}
    bodies = [kernel.body]
    while bodies:
        for stmt in bodies.pop():
            match stmt:
                case Let(var=var) | Local(var=var):
                    names.add(var.name)
                case For(var=var, body=body):
                    names.add(var.name)
                    bodies.append(body)
                case If(then=then, other=other):
                    bodies += [then, other]
                case _:
                    pass
    return names


def _name(number: int, taken: set[str]) -> str:
    name = f"number_{number}"
    while name in taken:
        name += "_"
    return name
