"""Values that names of an ONNX graph stand for: a tensor of the Graph, and how its axes lie in it.

ONNX counts channels before rows and columns (NCHW); kernels have them last (NHWC). Instead of
moving elements back and forth, a value remembers the order. Its elements are stored as a row of
*atoms*, sizes whose product is their number; each axis that the ONNX graph knows is a sequence of
atoms, the slowest first. So a Transpose only renames axes, a Reshape splits and joins them, and
elements are moved where an operator needs another order than they are in, not before.

Example: the result of a convolution, N=1, C=8, H=4, W=6, is stored as atoms (1, 4, 6, 8) with axes
((0,), (3,), (1,), (2,)). Flattened to (1, 192), its axes are ((0,), (3, 1, 2)), in the same memory.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from math import prod

from msgspec import Struct
from msgspec.structs import replace

Axis = tuple[int, ...]
Shape = tuple[int, ...]


class Value(Struct, frozen=True):
    """``tensor`` is a tensor of the Graph with the elements in the order of ``atoms``, whatever its
    own shape; ``axes`` are ONNX's, each the numbers of its atoms."""

    tensor: int
    atoms: Shape
    axes: tuple[Axis, ...]

    @property
    def shape(self) -> Shape:
        """Returns the shape as ONNX has it."""
        return tuple(prod(self.atoms[atom] for atom in axis) for axis in self.axes)

    @property
    def elements(self) -> int:
        return prod(self.atoms)

    @property
    def order(self) -> Axis | None:
        """Returns ONNX's axes in the order in which they lie in memory (axes of size 1 anywhere);
        None if an axis isn't contiguous there."""
        places = []
        for number, axis in enumerate(self.axes):
            moving = [atom for atom in axis if self.atoms[atom] != 1]
            if moving and moving != [
                atom for atom in range(moving[0], moving[-1] + 1) if self.atoms[atom] != 1
            ]:
                return None
            places.append((moving[0] if moving else axis[0], number))
        return tuple(number for _, number in sorted(places))

    @property
    def plain(self) -> bool:
        """Returns whether the elements lie in memory as ONNX has them."""
        return self.arranged(range(len(self.axes)))

    def arranged(self, order: Sequence[int]) -> bool:
        """Returns whether the elements lie as if axes were in this ``order``."""
        return is_sorted(self.sequence(order), self.atoms)

    def sequence(self, order: Sequence[int]) -> list[int]:
        """Returns the atoms as they would lie if axes were in this ``order``."""
        return [atom for axis in order for atom in self.axes[axis]]

    def transposed(self, permutation: Sequence[int]) -> Value:
        """Returns the value whose axis i is this one's axis ``permutation[i]``."""
        return replace(self, axes=tuple(self.axes[axis] for axis in permutation))

    def reshaped(self, shape: Sequence[int]) -> Value | None:
        """Returns the same elements under another shape, of as many; None where an atom would have
        to be in parts of two axes, so that the elements must be in ONNX's order first."""
        sizes: list[int] = []
        pieces: dict[int, list[int]] = {atom: [] for atom in range(len(self.atoms))}
        queue = [(atom, self.atoms[atom]) for axis in self.axes for atom in axis]
        queue = [(atom, size) for atom, size in queue if size != 1][::-1]
        axes: list[list[int]] = []
        if 0 in shape:
            return Value(self.tensor, tuple(shape), tuple((i,) for i in range(len(shape))))
        for wanted in shape:
            remaining, axis = wanted, list[int]()
            while remaining > 1:
                if not queue:
                    return None
                atom, size = queue.pop()
                if remaining % size == 0:
                    size_of_axis = size
                elif size % remaining == 0:
                    size_of_axis = remaining
                    queue.append((atom, size // remaining))
                else:
                    return None
                pieces[atom].append(len(sizes))
                axis.append(len(sizes))
                sizes.append(size_of_axis)
                remaining //= size_of_axis
            axes.append(axis)
        return _numbered(self.tensor, sizes, pieces, axes, self._anchors())

    def without(self, axes: Collection[int]) -> Value:
        """Returns the value without ``axes``, each of one element."""
        return replace(self, axes=tuple(
            axis for number, axis in enumerate(self.axes) if number not in axes
        ))

    def _anchors(self) -> list[int]:
        return [axis[0] for axis in self.axes]


def _numbered(
    tensor: int, sizes: Sequence[int], pieces: dict[int, list[int]], axes: Sequence[list[int]],
    anchors: Sequence[int],
) -> Value:
    """Returns the value whose atoms are the ``pieces`` of the old ones, in their order in memory.

    Axes of one element get an atom behind the axis before them, or where the old axis of this
    number was, if there are as many axes.
    """
    row: list[int] = []
    extra = len(sizes)
    sizes = list(sizes)
    for atom in sorted(pieces):
        row += pieces[atom]
        for number, axis in enumerate(axes):
            if not axis and len(axes) == len(anchors) and anchors[number] == atom:
                axis.append(extra)
                row.append(extra)
                sizes.append(1)
                extra += 1
    for number, axis in enumerate(axes):
        if not axis:
            axis.append(extra)
            sizes.append(1)
            before = row.index(axes[number - 1][-1]) + 1 if number else 0
            row.insert(before, extra)
            extra += 1
    place = {atom: position for position, atom in enumerate(row)}
    return Value(
        tensor, tuple(sizes[atom] for atom in row),
        tuple(tuple(place[atom] for atom in axis) for axis in axes),
    )


def stored(tensor: int, shape: Sequence[int], order: Sequence[int] | None = None) -> Value:
    """Returns the value of a tensor of ``shape``; axis i of it is ONNX's axis ``order[i]``."""
    order = range(len(shape)) if order is None else order
    place = {axis: position for position, axis in enumerate(order)}
    return Value(tensor, tuple(shape), tuple((place[axis],) for axis in range(len(shape))))


def is_sorted(sequence: Sequence[int], atoms: Sequence[int]) -> bool:
    """Returns whether the atoms are in memory in this sequence; those of size 1 may be anywhere."""
    if 0 in atoms:
        return True
    moving = [atom for atom in sequence if atoms[atom] != 1]
    return moving == sorted(moving)


def runs(sequence: Sequence[int], atoms: Sequence[int]) -> list[list[int]]:
    """Returns the atoms of ``sequence`` of more than one element, in groups of neighbours that stay
    neighbours: few axes make a Transpose quick."""
    groups: list[list[int]] = []
    moving = [atom for atom in range(len(atoms)) if atoms[atom] != 1]
    following = dict(pairwise(moving))
    for atom in sequence:
        if atoms[atom] == 1:
            continue
        if groups and following.get(groups[-1][-1]) == atom:
            groups[-1].append(atom)
        else:
            groups.append([atom])
    return groups


def channels_last(rank: int) -> Axis:
    """Returns the order of axes in which kernels read images: (0, 2, …, rank - 1, 1)."""
    return (0, *range(2, rank), 1)
