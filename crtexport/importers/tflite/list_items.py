"""Items of lists that loops write, as TensorFlow's converter has them.

TensorListSetItem becomes a concatenation of what is before the item, the item and what is behind
it, two slices of the list whose sizes only a run knows. Together they write one row of a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from crtexport.importers.tflite.schema import BuiltinOperator, ConcatenationOptions
from crtexport.importers.tflite.tensors import TensorTable
from crtexport.importers.tflite.variables import Subgraph
from crtexport.ir.graph import Node, Tensor
from crtexport.ir.ops import Concatenation, DynamicUpdateSlice
from crtexport.ir.types import ConstantRef, DType, TensorType

_MOVES = (BuiltinOperator.RESHAPE, BuiltinOperator.EXPAND_DIMS, BuiltinOperator.SQUEEZE)


class ListItem(Struct, frozen=True):
    """The ``item`` of ``values`` at ``place``, one number, that ``result`` has in place of the old
    one. ``slices`` are the operators that cut the list."""

    values: int
    item: int
    place: int
    result: int
    slices: tuple[int, int]

    def nodes(self, tensors: TensorTable, define: Callable[[Tensor], int]) -> list[Node]:
        """Returns the nodes that write it; ``define`` makes tensors."""
        result, axes = tensors.tensor(self.result), len(tensors.tensor(self.values).type.shape)
        nowhere = TensorType(DType.INT32, (axes - 1,))
        behind = define(Tensor(f"{result.name}/behind", nowhere, ConstantRef(
            nowhere.nbytes, bytes(nowhere.nbytes)
        )))
        start = define(Tensor(f"{result.name}/start", TensorType(DType.INT32, (axes,))))
        # The file has placeholders for the shapes of what only a run knows.
        type_ = tensors.tensor(self.values).type
        tensors.define(self.result, Tensor(result.name, type_))
        return [
            Node(Concatenation(0), (self.place, behind), (start,), result.name),
            Node(
                DynamicUpdateSlice(), (self.values, self.item, start), (self.result,), result.name
            ),
        ]


def list_items(subgraph: Subgraph) -> dict[int, ListItem]:
    """Returns the items that a subgraph writes, by the concatenation that ends the writing."""
    return {
        index: item for index, (code, _) in enumerate(subgraph.codes)
        if code == BuiltinOperator.CONCATENATION
        and (item := _ItemReader(subgraph).item(index)) is not None
    }


class _ItemReader:
    def __init__(self, subgraph: Subgraph) -> None:
        self._subgraph, self._tensors = subgraph, subgraph.tensors
        self._makers = {
            tensor: index
            for index, operator in enumerate(subgraph.operators) for tensor in operator.outputs
        }

    def item(self, index: int) -> ListItem | None:
        operator = self._subgraph.operators[index]
        if len(operator.inputs) != 3 or not self._joins_rows(index):
            return None
        before, item, after = operator.inputs
        first, last = (self._maker(t, BuiltinOperator.SLICE) for t in (before, after))
        if first is None or last is None or min(item, *operator.outputs) < 0:
            return None
        values, begin, size = self._subgraph.operators[first].inputs
        others, start, rest = self._subgraph.operators[last].inputs
        if values != others or {*self._constant(begin)} != {0} or {*self._constant(rest)} != {-1}:
            return None
        place, behind = self._head(size, -1), self._head(start, 0)
        if place is None or behind is None or not self._follows(behind, place):
            return None
        if self._tensors.tensor(place).type.shape != (1,):
            return None
        return ListItem(values, item, place, operator.outputs[0], (first, last))

    def _joins_rows(self, index: int) -> bool:
        """Returns whether a concatenation is along the first axis, with nothing behind it."""
        operator = self._subgraph.operators[index]
        union = operator.builtin_options
        if operator.builtin_options_type != ConcatenationOptions.UNION or not union:
            return False
        options = union.read(ConcatenationOptions)
        return options.axis == 0 and options.fused_activation_function == 0

    def _maker(self, tensor: int, *codes: int) -> int | None:
        """Returns the operator that makes a tensor, if it is one of these."""
        index = self._makers.get(tensor)
        if index is None or self._subgraph.codes[index][0] not in codes:
            return None
        return index

    def _constant(self, tensor: int) -> Sequence[int]:
        """Returns the numbers of a constant; none of others."""
        known = self._tensors.tensor(tensor)
        if known.constant is None or known.type.dtype is not DType.INT32:
            return ()
        numbers: list[int] = known.constant.array(known.type).reshape(-1).tolist()
        return numbers

    def _head(self, tensor: int, tail_number: int) -> int | None:
        """Returns the one number that a computed list begins with, ``tail_number`` behind it."""
        index = self._maker(tensor, BuiltinOperator.CONCATENATION)
        if index is None:
            return None
        head, *tail = self._subgraph.operators[index].inputs
        behind = [number for t in tail for number in self._constant(t)]
        return head if tail and {*behind} == {tail_number} else None

    def _follows(self, next_place: int, place: int) -> bool:
        """Returns whether ``next_place`` is ``place`` + 1."""
        origins = [*self._moved_from(place)]
        for tensor in self._moved_from(next_place):
            index = self._maker(tensor, BuiltinOperator.ADD)
            if index is None:
                continue
            for one, other in (ends := self._subgraph.operators[index].inputs), ends[::-1]:
                if list(self._constant(one)) == [1] and other in origins:
                    return True
        return False

    def _moved_from(self, tensor: int) -> Iterator[int]:
        """Yields a tensor and those that it is a reshape of."""
        yield tensor
        while (index := self._maker(tensor, *_MOVES)) is not None:
            tensor = self._subgraph.operators[index].inputs[0]
            yield tensor
