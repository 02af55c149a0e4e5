"""A graph that grows node by node: what those who add nodes choose from, and what they add."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from crtexport.ir.graph import Graph, Node, Tensor, Variable
from crtexport.ir.infer import infer
from crtexport.ir.ops import Activation, Op
from crtexport.ir.types import ConstantRef, DType, Quantization, TensorType
from crtexport.support.errors import CrtExportError

Array = npt.NDArray[Any]
T = TypeVar("T")

F32, I8, U8, I16, I32, I64, BOOL = (
    DType.FLOAT32, DType.INT8, DType.UINT8, DType.INT16, DType.INT32, DType.INT64, DType.BOOL,
)
SCALED = (I8, U8, I16)
"""Element types that stand for real numbers where they have scales."""
NUMBERS = (F32, I8, U8, I16, I32, I64)
EVERY = tuple(DType)

MOST_ELEMENTS = 400
"""No tensor has more: the interpreter runs every graph several times."""
MOST_PRODUCTS = 12_000
"""No node multiplies more often."""

_CHANNELS = (1, 2, 3, 4, 4, 4, 5, 7, 8, 8, 12, 16, 16, 17)
_SIZES = (1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 11, 13, 16, 17)


class MisfitError(Exception):
    """An operator can't be added to this graph."""


@dataclass(frozen=True)
class Grown:
    """A valid network with inputs for runs one after the other."""

    graph: Graph
    runs: tuple[tuple[Array, ...], ...]


@dataclass
class Drawing:
    """Choices of a seed: always the same."""

    seed: int | str
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)  # noqa: S311

    def integer(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def choice(self, options: Sequence[T]) -> T:
        return self.rng.choice(options)

    def chance(self, percent: int) -> bool:
        return self.rng.random() * 100 < percent

    def numpy(self) -> np.random.Generator:
        return np.random.default_rng(self.rng.getrandbits(63))

    # -- numbers of tensors

    def size(self, most: int = 17) -> int:
        """An extent; ones and primes among them."""
        return min(self.choice(_SIZES), most)

    def shape(self, rank: int | None = None, elements: int = 120) -> tuple[int, ...]:
        """A shape of at most so many elements; now and then with an axis of none."""
        if rank is None:
            rank = self.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4, 4, 5))
        shape = [self.size() for _ in range(rank)]
        if rank > 2:
            shape[0] = self.choice((1, 1, 1, 1, 2, 3))
        if rank == 4:
            shape[3] = self.choice(_CHANNELS)
        if shape and self.chance(1):
            shape[self.integer(0, rank - 1)] = 0
        while math.prod(shape) > elements:
            largest = shape.index(max(shape[: 3 if rank == 4 and max(shape[:3]) > 1 else None]))
            shape[largest] = max(shape[largest] // 2, 1)
        return tuple(shape)

    def scale(self) -> float:
        """A float32 scale: around what networks have, powers of two, and now and then extremes."""
        mantissa = self.choice((1.0, 1.5, 1.0 + self.integer(1, 999) / 1000))
        exponent = self.integer(-10, 0) if not self.chance(6) else self.integer(-30, 12)
        return float(np.float32(mantissa * 2.0**exponent))

    def zero(self, dtype: DType) -> int:
        """A zero point, the limits among them; int16 has none but 0."""
        if dtype is I16:
            return 0
        low, high = dtype.limits
        return self.choice((low, high, low + 128, self.integer(low, high)))

    def quant(self, dtype: DType) -> Quantization | None:
        """Scale and zero point, for types that have them."""
        return Quantization((self.scale(),), (self.zero(dtype),)) if dtype in SCALED else None

    def activation(self, *without: Activation) -> Activation:
        return self.choice([a for a in Activation if a not in without])

    def values(self, type_: TensorType, limits: tuple[int, int] | None = None) -> Array:
        """Data of a tensor, its extremes among them. Floats are sums of few powers of two, most
        times: what is computed of them is exact in any order."""
        rng, dtype = self.numpy(), type_.dtype
        shape = type_.shape
        if dtype is BOOL:
            return rng.integers(0, 2, shape).astype(np.bool_)
        if dtype.is_float:
            if self.chance(70):
                return (rng.integers(-16, 17, shape) / self.choice((1, 2, 8))).astype(dtype.numpy)
            return rng.normal(0, self.choice((0.3, 3.0)), shape).astype(dtype.numpy)
        low, high = limits or dtype.limits
        if limits is None and self.chance(25):
            return rng.choice(np.array([low, high, 0], dtype.numpy), shape)
        if limits is None and dtype.itemsize > 2 and self.chance(80):
            low, high = max(low, -100), 100
        return rng.integers(low, high, shape, dtype.numpy, endpoint=True)


class Growing:
    """A graph, and the tensors in it that a next node may read.

    ``given``: the types of its inputs, for a graph that a node runs.
    """

    def __init__(self, draw: Drawing, given: Sequence[TensorType] = (), depth: int = 0) -> None:
        self.draw, self.depth = draw, depth
        self.tensors: list[Tensor] = []
        self.nodes: list[Node] = []
        self.inputs: list[int] = []
        self.alive: list[int] = []
        self.limits: dict[int, tuple[int, int]] = {}
        self.closed = bool(given)
        self.memory = draw.choice((1, 1, 2, 3, 5, 100))
        """Numbers of the last tensors that a node may read: with one, the graph is a chain."""
        for type_ in given:
            self._input(type_)

    # -- tensors

    def tensor(
        self, type_: TensorType, constant: ConstantRef | None = None,
        variable: Variable | None = None,
    ) -> int:
        self.tensors.append(Tensor(f"t{len(self.tensors)}", type_, constant, variable))
        return len(self.tensors) - 1

    def type(self, tensor: int) -> TensorType:
        return self.tensors[tensor].type

    def constant(
        self, values: npt.ArrayLike, quant: Quantization | None = None,
        dtype: DType | None = None,
    ) -> int:
        array = np.asarray(values)
        kind = dtype or DType(array.dtype.name)
        array = array.astype(kind.numpy)
        return self.tensor(TensorType(kind, array.shape, quant), ConstantRef.of(array))

    def fresh(self, type_: TensorType, limits: tuple[int, int] | None = None) -> int:
        """A new input of the graph, or a new constant; integers within ``limits``."""
        if type_.elements > MOST_ELEMENTS:
            raise MisfitError(f"{type_} is large")
        if self.closed or self.draw.chance(20):
            values = self.draw.values(type_, limits)
            return self.constant(values, type_.quant, type_.dtype)
        number = self._input(type_)
        if limits is not None:
            self.limits[number] = limits
        return number

    def _input(self, type_: TensorType) -> int:
        self.inputs.append(self.tensor(type_))
        self.alive.append(self.inputs[-1])
        return self.inputs[-1]

    def find(self, wanted: Callable[[TensorType], bool]) -> int | None:
        """A tensor of such a type, late ones rather than early ones."""
        found = [t for t in self.alive[-self.memory :] if wanted(self.type(t))]
        if not found:
            return None
        return found[-1] if self.draw.chance(50) else self.draw.choice(found)

    def pick(
        self, dtypes: Sequence[DType], wanted: Callable[[TensorType], bool] = lambda _: True,
        rank: int | None = None,
    ) -> int:
        """A tensor of one of ``dtypes`` that fits; a new one where there is none, and sometimes."""
        def fits(type_: TensorType) -> bool:
            return (
                type_.dtype in dtypes and wanted(type_)
                and (rank is None or len(type_.shape) == rank)
            )

        found = self.find(fits) if self.draw.chance(93) else None
        if found is not None:
            return found
        if self.memory < 3 and self.nodes and self.draw.chance(90):
            raise MisfitError("the chain goes on with another operator")
        for _ in range(8):
            dtype = self.draw.choice(dtypes)
            type_ = TensorType(dtype, self.draw.shape(rank), self.draw.quant(dtype))
            if fits(type_):
                return self.fresh(type_)
        raise MisfitError("no tensor fits")

    def like(self, tensor: int) -> int:
        """A tensor of the same type: another one, the same, or a new one."""
        type_ = self.type(tensor)
        found = self.find(lambda t: t == type_)
        return found if found is not None and self.draw.chance(70) else self.fresh(type_)

    # -- nodes

    def add(
        self, op: Op, *inputs: int | None, quant: Quantization | str | None = "draw",
        dtypes: tuple[DType, ...] | None = None, graphs: tuple[Graph, ...] = (),
        quants: Sequence[Quantization | None] | None = None,
    ) -> tuple[int, ...]:
        """A node; its outputs. ``quant`` is theirs, where they have scaled types; "like": that of
        the first input. ``dtypes``: their element types, where the operator leaves these open."""
        types = tuple(None if t is None else self.type(t) for t in inputs)
        first = next((t for t in types if t is not None), None)
        declared = dtypes or ((first.dtype,) if first is not None else (I8,))
        try:
            results = infer(op, types, declared=declared, graphs=graphs)
        except CrtExportError as error:
            raise MisfitError(str(error)) from error
        if any(r.elements > MOST_ELEMENTS or len(r.shape) > 6 for r in results):
            raise MisfitError("too large")
        outputs = []
        for position, result in enumerate(results):
            if quants is not None:
                own = quants[position]
            elif result.dtype not in SCALED:
                own = None
            elif quant == "draw":
                own = self.draw.quant(result.dtype)
            elif quant == "like":
                own = first.quant if first is not None else None
            else:
                own = quant if isinstance(quant, Quantization) else None
            outputs.append(self.tensor(TensorType(result.dtype, result.shape, own)))
        origin = f"operator {len(self.nodes)} ({type(op).__name__})"
        self.nodes.append(Node(op, inputs, tuple(outputs), f"n{len(self.nodes)}", origin, graphs))
        self.alive += outputs
        return tuple(outputs)

    def one(self, op: Op, *inputs: int | None, **options: Any) -> int:
        """The output of a node that has one."""
        (output,) = self.add(op, *inputs, **options)
        return output

    def attempt(self, producer: Callable[[Growing], None]) -> bool:
        """Lets ``producer`` add nodes; whether it could."""
        counts = len(self.tensors), len(self.nodes), len(self.inputs), len(self.alive)
        try:
            producer(self)
        except MisfitError:
            tensors, nodes, inputs, alive = counts
            del self.tensors[tensors:], self.nodes[nodes:], self.inputs[inputs:]
            del self.alive[alive:]
            return False
        return True

    def graph(self, name: str, outputs: Sequence[int]) -> Graph:
        return Graph(
            name, tuple(self.tensors), tuple(self.nodes), tuple(self.inputs), tuple(outputs)
        )


def scaled(type_: TensorType) -> bool:
    """Returns whether integers that stand for real numbers say how, with one scale; and int16
    around 0."""
    if type_.dtype not in SCALED:
        return True
    quant = type_.quant
    return quant is not None and quant.per_tensor and (
        type_.dtype is not I16 or quant.zero_point == (0,)
    )


def full(type_: TensorType) -> bool:
    """Returns whether there are elements."""
    return type_.elements > 0
