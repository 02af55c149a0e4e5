"""Merges kernels that differ in constants alone: the constants become parameters.

Each call passes the values that differ: a multiplier, a zero point, the extent of a loop, the width
of an image. That saves code and costs instructions, how many depends on the positions of the
constants. So the gain of each merge is estimated, and only kernels whose merging gains something
take part.
"""

from __future__ import annotations

import enum
import math
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
    """The kinds of constants in which merged kernels may differ."""

    COMPUTED = "computed"  # with, but no addresses; and extents of loops around others
    OUTER = "outer"  # and addresses outside of innermost loops
    ANY = "any"  # but divisors


class MergedCall(Struct, frozen=True):
    """A kernel, and the values of its parameters for one caller."""

    kernel: Kernel
    values: tuple[int, ...] = ()


class MergeCosts(Struct, frozen=True):
    """Costs of merging, in bytes of code. ``call``: the cost of one call, with the instructions
    that it adds converted to bytes; ``code``: the size of a kernel's code, however often it is
    called."""

    call: Callable[[MergedCall, int, int], float]
    code: Callable[[Kernel], float]
    levels: tuple[MergeLevel, ...]


Weigh = Callable[[Sequence[Kernel], Sequence[int]], MergeCosts]
"""Gives the costs by which the kernels of a package's calls are merged, each of which is made so
many times."""


class _Member(Struct, frozen=True):
    """One of the different kernels, identified by ``key``; ``calls`` is the number of its callers.
    """

    kernel: Kernel
    key: bytes
    calls: int
    runs: int


_Alike = list[tuple[_Member, Numbers]]
"""Kernels with one skeleton, and their numbers."""


class _Merge(Struct, frozen=True):
    """Kernels that become one, the call that replaces each, and the bytes of code that this saves.
    """

    members: tuple[tuple[_Member, MergedCall], ...]
    gain: float


def merge(
    kernels: Sequence[Kernel], weigh: Weigh | None, keys: Sequence[bytes] | None = None,
    runs: Sequence[int] | None = None,
) -> list[MergedCall]:
    """Returns the call that replaces each of ``kernels``, which have no parameters.

    Kernels that are equal but for constants that may differ become one where that saves code. With
    a call's values in place of its parameters, the merged kernel is the original one, except that
    buffers may be larger and alignments smaller. Without ``weigh`` nothing is merged. ``keys``
    identify equal kernels, where that is known already.
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
    """Returns a cheap key that is equal for all kernels that differ only in constants, and differs
    for most others."""
    return kernel.name, key.count(b"Let"), key.count(b"Load"), key.count(b"Const")


def _alike(members: Sequence[_Member]) -> list[_Alike]:
    """Returns groups of two or more kernels that differ only in constants."""
    looks = [_looks(member.kernel, member.key) for member in members]
    counts = Counter(looks)
    groups: dict[Skeleton, _Alike] = {}
    for member, look in zip(members, looks, strict=True):
        if counts[look] > 1:
            rest, numbers = skeleton(member.kernel)
            groups.setdefault(rest, []).append((member, numbers))
    return [group for group in groups.values() if len(group) > 1]


def _free(group: _Alike, level: MergeLevel) -> list[_Alike]:
    """Returns subgroups of two or more kernels that differ only in constants of the kinds that
    ``level`` allows."""
    _, first = group[0]
    fixed = [at for at, number in enumerate(first) if not _may_differ(*number, level)]
    found: dict[tuple[str, ...], _Alike] = {}
    for member, numbers in group:
        # As text, in which 0.0 isn't -0.0.
        key = tuple(repr(numbers[at][0].value) for at in fixed)
        found.setdefault(key, []).append((member, numbers))
    return [alike for alike in found.values() if len(alike) > 1]


def _best(group: _Alike, costs: MergeCosts) -> list[_Merge]:
    """Returns the merges of the level that saves most; the kernels of ``group`` differ only in
    constants that the last level allows."""
    *less, most = costs.levels
    found = [(level, _free(group, level)) for level in less]
    ways = [
        [one for free in groups for one in _merges(free, level, costs)]
        for level, groups in (*found, (most, [group]))
    ]
    return max(ways, key=lambda way: math.fsum(candidate.gain for candidate in way))


def _merges(members: _Alike, level: MergeLevel, costs: MergeCosts) -> list[_Merge]:
    """Merges as many kernels as gain by it together, then, in the same way, the remaining ones."""
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
    """Returns the merge of those of ``members`` that gain by it; None where there is no gain."""
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
            gain = math.fsum(gains) - costs.code(merged[0].kernel)
            both = tuple((m, sharing) for (m, _), sharing in zip(chosen, merged, strict=True))
            return _Merge(both, gain) if gain > 0 else None
        chosen = staying
    return None


def _may_differ(constant: kir.Const, place: ConstantPosition, level: MergeLevel) -> bool:
    if constant.type not in _NUMBERS or place is ConstantPosition.DIVISOR:
        return False
    if place is ConstantPosition.ASSEMBLED:
        return constant.type is not Scalar.INDEX
    if level is MergeLevel.ANY:
        return True
    if place is ConstantPosition.OUTSIDE and level is MergeLevel.OUTER:
        return True
    return place is ConstantPosition.EXTENT or constant.type is not Scalar.INDEX


def _merged(members: _Alike, level: MergeLevel) -> list[MergedCall] | None:
    """Returns one kernel for all members, with a parameter for each constant in which they differ;
    None where there are too many of these."""
    kernels = [member.kernel for member, _ in members]
    used_names = names_in(kernels[0])
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
            new = kir.Var(_name(len(parameters), used_names), type_)
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
    """Returns the type in which values are passed: 32-bit words where they fit, since the product
    of two widened words takes one instruction."""
    narrow = type_ is Scalar.I64 and all(-(1 << 31) <= value < 1 << 31 for value in values)
    return Scalar.I32 if narrow else type_


def _common(buffers: list[Buffer]) -> Buffer:
    """Returns a buffer with the size and alignment that hold for all of ``buffers``."""
    return replace(
        buffers[0], size=max(b.size for b in buffers), align=min(b.align for b in buffers)
    )


def names_in(kernel: Kernel) -> set[str]:
    """Returns every name that ``kernel`` uses."""
    naming = (s for s in walk(kernel.body) if isinstance(s, (kir.Let, kir.Local, kir.For)))
    named = (stmt.var.name for stmt in naming)
    return {buffer.name for buffer in kernel.buffers}.union(named)


def _name(number: int, used_names: set[str]) -> str:
    name = f"number_{number}"
    while name in used_names:
        name += "_"
    return name
