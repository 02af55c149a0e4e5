"""One function for layers whose kernels are alike but for numbers: the numbers become parameters.

Whatever differs between them, a multiplier, a zero point, the extent of a loop, the width of an
image, is passed by each call. That saves code and costs instructions: how many depends on where the
number stands. So each way to share is weighed, and each kernel takes part that gains by it.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from crtexport.kernels.ir import Buffer, Cast, Const, Expr, For, If, Kernel, Let, Local, Scalar, Var
from crtexport.kernels.rebuild import Place, rebuild
from crtexport.kernels.skeleton import Skeleton, skeleton
from crtexport.kernels.text import dump

_NUMBERS = (Scalar.I32, Scalar.U32, Scalar.I64, Scalar.INDEX)
MOST_PARAMETERS = 64


class Freedom(enum.Enum):
    """Which numbers of a kernel may be others in another one."""

    COMPUTED = "computed"  # with, but no addresses; and extents of loops around others
    ANY = "any"  # but divisors


class Sharing(Struct, frozen=True):
    """A kernel and, for one that uses it, the values of its parameters."""

    kernel: Kernel
    values: tuple[int, ...] = ()


class Worth(Struct, frozen=True):
    """What kernels are weighed by, in bytes of code. ``call``: what a call takes, its instructions
    counted as what they are worth; ``code``: what a kernel takes, however often it is called."""

    call: Callable[[Sharing], float]
    code: Callable[[Kernel], float]
    freedoms: tuple[Freedom, ...]


Weigh = Callable[[Sequence[Kernel]], Worth]
"""What the kernels of a package are weighed by."""


class _Member(Struct, frozen=True):
    """One of the different kernels; ``calls`` are as many as use it."""

    kernel: Kernel
    text: str
    calls: int


_Numbered = tuple[_Member, tuple[Const, ...]]
"""A kernel, and of its numbers those that may differ."""


class _Together(Struct, frozen=True):
    """Kernels that are one, each as what it is called, and the bytes that this gains."""

    members: tuple[tuple[_Member, Sharing], ...]
    gain: float


def share(
    kernels: Sequence[Kernel], weigh: Weigh | None, texts: Sequence[str] | None = None
) -> list[Sharing]:
    """What each of ``kernels``, which have no parameters, is called as.

    Those that are equal in text but for numbers that may differ get one kernel where that is worth
    it; with the values in the places of its parameters it is the one given, but for larger buffers
    and fewer promises. Without ``weigh`` each stays what it is. ``texts`` are those of the kernels
    without their docs, where they are known.
    """
    if texts is None:
        texts = [dump(replace(kernel, doc=())) for kernel in kernels]
    shared: dict[str, Sharing] = {}
    if weigh is not None and len(set(texts)) > 1:
        counts = Counter(texts)
        first = dict(zip(reversed(texts), reversed(kernels), strict=True))
        members = [_Member(first[text], text, calls) for text, calls in counts.items()]
        worth = weigh([first[text] for text in texts])
        looks = Counter(map(_looks, members))
        likely = (member for member in members if looks[_looks(member)] > 1)
        for group in _alike(likely, worth.freedoms[-1]):
            for together in _best(group, worth):
                shared |= {member.text: sharing for member, sharing in together.members}
    return [
        shared.get(text) or Sharing(kernel) for text, kernel in zip(texts, kernels, strict=True)
    ]


def _looks(member: _Member) -> tuple[str, int, int, int]:
    """Equal for kernels that differ only in numbers, and found at once: tells most others apart."""
    text = member.text
    return member.kernel.name, text.count("\n"), text.count("("), text.count("[")


def _alike(members: Iterable[_Member], freedom: Freedom) -> list[list[_Numbered]]:
    """Groups of at least two that differ only in numbers that may."""

    def differs(constant: Const, place: Place) -> bool:
        return _may_differ(constant, place, freedom)

    groups: dict[Skeleton, list[_Numbered]] = {}
    for member in members:
        rest, numbers = skeleton(member.kernel, differs)
        groups.setdefault(rest, []).append((member, numbers))
    return [group for group in groups.values() if len(group) > 1]


def _best(group: list[_Numbered], worth: Worth) -> list[_Together]:
    """The way to share that gains most, of one for each freedom; the kernels of ``group`` differ in
    what the last one lets them."""
    members = [member for member, _ in group]
    *less, most = worth.freedoms
    found = [(freedom, _alike(members, freedom)) for freedom in less]
    ways = [
        [one for alike in groups for one in _joined(alike, freedom, worth)]
        for freedom, groups in (*found, (most, [group]))
    ]
    return max(ways, key=lambda way: sum(together.gain for together in way))


def _joined(
    members: Sequence[_Numbered], freedom: Freedom, worth: Worth
) -> list[_Together]:
    """First as many as gain by it together; then so those that are left."""
    found: list[_Together] = []
    left = list(members)
    while len(left) > 1:
        together = _together(left, freedom, worth)
        if together is None:
            break
        found.append(together)
        taken = {member.text for member, _ in together.members}
        left = [one for one in left if one[0].text not in taken]
    return found


def _together(
    members: Sequence[_Numbered], freedom: Freedom, worth: Worth
) -> _Together | None:
    """Those of ``members`` that gain by being one kernel; None where it isn't worth it."""
    chosen = list(members)
    while len(chosen) > 1:
        merged = _merged(chosen, freedom)
        if merged is None:
            return None
        gains = [
            worth.code(m.kernel) + m.calls * (worth.call(Sharing(m.kernel)) - worth.call(sharing))
            for (m, _), sharing in zip(chosen, merged, strict=True)
        ]
        staying = [one for one, gain in zip(chosen, gains, strict=True) if gain > 0]
        if len(staying) == len(chosen):
            gain = sum(gains) - worth.code(merged[0].kernel)
            both = tuple((m, sharing) for (m, _), sharing in zip(chosen, merged, strict=True))
            return _Together(both, gain) if gain > 0 else None
        chosen = staying
    return None


def _may_differ(constant: Const, place: Place, freedom: Freedom) -> bool:
    if constant.type not in _NUMBERS or place is Place.DIVISOR:
        return False
    if freedom is Freedom.ANY:
        return True
    return place is Place.EXTENT or constant.type is not Scalar.INDEX


def _merged(members: Sequence[_Numbered], freedom: Freedom) -> list[Sharing] | None:
    """One kernel for all, with a parameter for each number that they differ in; None where those
    are too many."""
    kernels = [member.kernel for member, _ in members]
    columns = list(zip(*(numbers for _, numbers in members), strict=True))
    taken = names_in(kernels[0])
    parameters: dict[tuple[Scalar, tuple[int, ...]], Var] = {}
    for column in columns:
        values = tuple(int(constant.value) for constant in column)
        if len(set(values)) > 1:
            key = _passed_as(column[0].type, values), values
            parameters.setdefault(key, Var(_name(len(parameters), taken), key[0]))
    if len(parameters) > MOST_PARAMETERS:
        return None
    places = iter(columns)

    def replaced(constant: Const, place: Place) -> Expr:
        if not _may_differ(constant, place, freedom):
            return constant
        column = next(places)
        values = tuple(int(other.value) for other in column)
        passed = _passed_as(constant.type, values)
        parameter = parameters.get((passed, values))
        if parameter is None or passed is constant.type:
            return parameter or constant
        return Cast(parameter, constant.type)

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


def _passed_as(type_: Scalar, values: Sequence[int]) -> Scalar:
    """Words where they are enough: products of two words widened take one instruction."""
    narrow = type_ is Scalar.I64 and all(-(1 << 31) <= value < 1 << 31 for value in values)
    return Scalar.I32 if narrow else type_


def _common(buffers: list[Buffer]) -> Buffer:
    """What may be promised of all."""
    return replace(
        buffers[0], size=max(b.size for b in buffers), align=min(b.align for b in buffers),
        noalias=all(b.noalias for b in buffers),
    )


def names_in(kernel: Kernel) -> set[str]:
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
