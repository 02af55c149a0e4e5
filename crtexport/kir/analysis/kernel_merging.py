"""Merges kernels that differ in constants alone: the constants become parameters.

Each call passes what differs: a multiplier, a zero point, the extent of a loop, the width of an
image. That saves code and costs instructions: how many depends on where the constant stands. So
each merge is weighed, and each kernel takes part that gains by it.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from crtexport.kir import language as kir
from crtexport.kir.analysis.constant_skeleton import ConstantPosition, Numbers, Skeleton, skeleton
from crtexport.kir.fingerprint import fingerprint
from crtexport.kir.language import Buffer, Expr, Kernel, Scalar
from crtexport.kir.rewrite import substitute
from crtexport.kir.walk import walk

_NUMBERS = (Scalar.I32, Scalar.U32, Scalar.I64, Scalar.INDEX)
MOST_PARAMETERS = 64


class MergeLevel(enum.Enum):
    """Constants of a kernel that may differ in another one merged with it."""

    COMPUTED = "computed"  # with, but no addresses; and extents of loops around others
    OUTER = "outer"  # and addresses outside of innermost loops
    ANY = "any"  # but divisors


class MergedCall(Struct, frozen=True):
    """A kernel and, for one that uses it, the values of its parameters."""

    kernel: Kernel
    values: tuple[int, ...] = ()


class MergeCosts(Struct, frozen=True):
    """Costs that merging is decided by, in bytes of code. ``call``: of so many calls in the code,
    which are made so many times in all, their instructions counted as what they are worth;
    ``code``: what a kernel takes, however often it is called."""

    call: Callable[[MergedCall, int, int], float]
    code: Callable[[Kernel], float]
    levels: tuple[MergeLevel, ...]


Weigh = Callable[[Sequence[Kernel], Sequence[int]], MergeCosts]
"""Gives the costs by which the kernels of a package's calls are merged, each of which is made so
many times."""


class _Member(Struct, frozen=True):
    """One of the different kernels, told apart by ``key``; ``calls`` are as many as use it, made
    ``runs`` times in all."""

    kernel: Kernel
    key: bytes
    calls: int
    runs: int


_Alike = list[tuple[_Member, Numbers]]
"""Kernels with one skeleton, and their numbers."""


class _Merge(Struct, frozen=True):
    """Kernels that are one, each as what it is called, and the bytes that this gains."""

    members: tuple[tuple[_Member, MergedCall], ...]
    gain: float


def merge(
    kernels: Sequence[Kernel], weigh: Weigh | None, keys: Sequence[bytes] | None = None,
    runs: Sequence[int] | None = None,
) -> list[MergedCall]:
    """Returns the call that takes the place of each of ``kernels``, which have no parameters; it
    is made so many times, by default once.

    Those that are equal but for numbers that may differ get one kernel where that is worth it; with
    the values in the places of its parameters it is the one given, but for larger buffers and fewer
    promises. Without ``weigh`` each stays what it is. ``keys`` are what tells the kernels apart,
    where it is known.
    """
    if keys is None:
        keys = [fingerprint(kernel) for kernel in kernels]
    shared: dict[bytes, MergedCall] = {}
    if weigh is not None and len(set(keys)) > 1:
        calls, made = Counter(keys), Counter[bytes]()
        times = runs or [1] * len(keys)
        for key, count in zip(keys, times, strict=True):
            made[key] += count
        first = dict(zip(reversed(keys), reversed(kernels), strict=True))
        members = [_Member(first[key], key, count, made[key]) for key, count in calls.items()]
        costs = weigh([first[key] for key in keys], times)
        for alike in _alike(members):
            for group in _free(alike, costs.levels[-1]):
                for candidate in _best(group, costs):
                    shared |= {member.key: sharing for member, sharing in candidate.members}
    return [
        shared.get(key) or MergedCall(kernel) for key, kernel in zip(keys, kernels, strict=True)
    ]


def _looks(kernel: Kernel, key: bytes) -> tuple[str, int, int, int]:
    """Equal for kernels that differ only in numbers, and found at once: tells most others apart."""
    return kernel.name, key.count(b"Let"), key.count(b"Load"), key.count(b"Const")


def _alike(members: Sequence[_Member]) -> list[_Alike]:
    """Groups of at least two that differ only in numbers."""
    looks = [_looks(member.kernel, member.key) for member in members]
    counts = Counter(looks)
    groups: dict[Skeleton, _Alike] = {}
    for member, look in zip(members, looks, strict=True):
        if counts[look] > 1:
            rest, numbers = skeleton(member.kernel)
            groups.setdefault(rest, []).append((member, numbers))
    return [group for group in groups.values() if len(group) > 1]


def _free(group: _Alike, level: MergeLevel) -> list[_Alike]:
    """Those of a group, at least two together, that differ only in numbers that may."""
    _, first = group[0]
    fixed = [at for at, number in enumerate(first) if not _may_differ(*number, level)]
    found: dict[tuple[str, ...], _Alike] = {}
    for member, numbers in group:
        # As text, in which 0.0 isn't -0.0.
        key = tuple(repr(numbers[at][0].value) for at in fixed)
        found.setdefault(key, []).append((member, numbers))
    return [alike for alike in found.values() if len(alike) > 1]


def _best(group: _Alike, costs: MergeCosts) -> list[_Merge]:
    """The way to share that gains most, of one for each freedom; the kernels of ``group`` differ in
    what the last one lets them."""
    *less, most = costs.levels
    found = [(level, _free(group, level)) for level in less]
    ways = [
        [one for free in groups for one in _merges(free, level, costs)]
        for level, groups in (*found, (most, [group]))
    ]
    return max(ways, key=lambda way: sum(candidate.gain for candidate in way))


def _merges(members: _Alike, level: MergeLevel, costs: MergeCosts) -> list[_Merge]:
    """First as many as gain by it together; then so those that are left."""
    found: list[_Merge] = []
    remaining = list(members)
    while len(remaining) > 1:
        candidate = _merge_of(remaining, level, costs)
        if candidate is None:
            break
        found.append(candidate)
        taken = {member.key for member, _ in candidate.members}
        remaining = [one for one in remaining if one[0].key not in taken]
    return found


def _merge_of(members: _Alike, level: MergeLevel, costs: MergeCosts) -> _Merge | None:
    """Those of ``members`` that gain by being one kernel; None where it isn't worth it."""
    chosen = list(members)
    while len(chosen) > 1:
        merged = _merged(chosen, level)
        if merged is None:
            return None
        gains = [
            costs.code(m.kernel) + costs.call(MergedCall(m.kernel), m.calls, m.runs)
            - costs.call(sharing, m.calls, m.runs)
            for (m, _), sharing in zip(chosen, merged, strict=True)
        ]
        staying = [one for one, gain in zip(chosen, gains, strict=True) if gain > 0]
        if len(staying) == len(chosen):
            gain = sum(gains) - costs.code(merged[0].kernel)
            both = tuple((m, sharing) for (m, _), sharing in zip(chosen, merged, strict=True))
            return _Merge(both, gain) if gain > 0 else None
        chosen = staying
    return None


def _may_differ(constant: kir.Const, place: ConstantPosition, level: MergeLevel) -> bool:
    if constant.type not in _NUMBERS or place is ConstantPosition.DIVISOR:
        return False
    if level is MergeLevel.ANY:
        return True
    if place is ConstantPosition.OUTSIDE and level is MergeLevel.OUTER:
        return True
    return place is ConstantPosition.EXTENT or constant.type is not Scalar.INDEX


def _merged(members: _Alike, level: MergeLevel) -> list[MergedCall] | None:
    """One kernel for all, with a parameter for each number that they differ in; None where those
    are too many."""
    kernels = [member.kernel for member, _ in members]
    taken = names_in(kernels[0])
    parameters: dict[tuple[Scalar, tuple[int, ...]], kir.Var] = {}
    numbers: list[Expr] = []
    for column in zip(*(numbers for _, numbers in members), strict=True):
        constant, place = column[0]
        numbers.append(constant)
        if not _may_differ(constant, place, level):
            continue
        values = tuple(int(other.value) for other, _ in column)
        if len(set(values)) > 1:
            type_ = _passed_as(constant.type, values)
            new = kir.Var(_name(len(parameters), taken), type_)
            parameter = parameters.setdefault((type_, values), new)
            same = type_ is constant.type
            numbers[-1] = parameter if same else kir.Cast(parameter, constant.type)
    if len(parameters) > MOST_PARAMETERS:
        return None
    buffers = {
        own.name: _common([kernel.buffers[i] for kernel in kernels])
        for i, own in enumerate(kernels[0].buffers)
    }
    overlapping = {name for kernel in kernels for name in kernel.overlapping}
    kernel = replace(
        substitute(kernels[0], numbers, buffers), params=tuple(parameters.values()), doc=(),
        overlapping=tuple(name for name in buffers if name in overlapping),
    )
    arguments = [values for _, values in parameters]
    return [
        MergedCall(kernel, tuple(values[number] for values in arguments))
        for number in range(len(kernels))
    ]


def _passed_as(type_: Scalar, values: Sequence[int]) -> Scalar:
    """Words where they are enough: products of two words widened take one instruction."""
    narrow = type_ is Scalar.I64 and all(-(1 << 31) <= value < 1 << 31 for value in values)
    return Scalar.I32 if narrow else type_


def _common(buffers: list[Buffer]) -> Buffer:
    """Returns a buffer that promises what all of them do."""
    return replace(
        buffers[0], size=max(b.size for b in buffers), align=min(b.align for b in buffers)
    )


def names_in(kernel: Kernel) -> set[str]:
    """Every name that ``kernel`` uses."""
    naming = (s for s in walk(kernel.body) if isinstance(s, (kir.Let, kir.Local, kir.For)))
    named = (stmt.var.name for stmt in naming)
    return {buffer.name for buffer in kernel.buffers}.union(named)


def _name(number: int, taken: set[str]) -> str:
    name = f"number_{number}"
    while name in taken:
        name += "_"
    return name
