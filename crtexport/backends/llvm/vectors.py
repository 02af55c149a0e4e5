"""Prints loads and stores of vectors: plain or masked, of elements no wider than a lane."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from crtexport.backends.llvm.types import ModuleText, storage_type, value_type
from crtexport.kir.alignment import alignment
from crtexport.kir.language import LoadVector, Scalar, StoreVector

Emit = Callable[[str], str]


def load_vector(expr: LoadVector, address: str, module: ModuleText, emit: Emit) -> str:
    """Returns the operand that holds the lanes; ``emit`` adds an instruction and names it."""
    memory, align = _memory(expr.buffer.dtype, expr.type, module), alignment(expr)
    if expr.count == expr.type.lanes:
        value = emit(f"load {memory}, ptr {address}, align {align}")
    elif expr.type is Scalar.I8X16 and expr.count in (4, 8) and _splits_masked(module):
        part = emit(f"load <{expr.count} x i8>, ptr {address}, align {align}")
        value = emit(
            f"shufflevector <{expr.count} x i8> {part}, <{expr.count} x i8> zeroinitializer, "
            f"{_widening(expr.count)}"
        )
    else:
        name = f"llvm.masked.load.{_mangled(memory)}.p0"
        mask = f"<{expr.type.lanes} x i1>"
        module.declare(f"declare {memory} @{name}(ptr, i32 immarg, {mask}, {memory})")
        value = emit(
            f"call {memory} @{name}(ptr {address}, i32 {align}, "
            f"{mask} {_first(expr.count, expr.type.lanes)}, {memory} zeroinitializer)"
        )
    if expr.buffer.dtype.itemsize == expr.type.lane.itemsize:
        return value
    word = "sext" if expr.buffer.dtype.is_signed else "zext"
    return emit(f"{word} {memory} {value} to {value_type(expr.type, module.target)}")


def store_vector(
    stmt: StoreVector, value: str, address: str, module: ModuleText, emit: Emit
) -> Iterator[str]:
    """Returns the instruction that stores ``value``, after those that narrow it."""
    type_ = stmt.value.type
    memory, align = _memory(stmt.buffer.dtype, type_, module), stmt.buffer.dtype.itemsize
    if stmt.buffer.dtype.itemsize < type_.lane.itemsize:
        value = emit(f"trunc {value_type(type_, module.target)} {value} to {memory}")
    if stmt.count == type_.lanes:
        yield f"store {memory} {value}, ptr {address}, align {align}"
        return
    name = f"llvm.masked.store.{_mangled(memory)}.p0"
    mask = f"<{type_.lanes} x i1>"
    module.declare(f"declare void @{name}({memory}, ptr, i32 immarg, {mask})")
    yield (
        f"call void @{name}({memory} {value}, ptr {address}, i32 {align}, "
        f"{mask} {_first(stmt.count, type_.lanes)})"
    )


def _memory(element: Scalar, type_: Scalar, module: ModuleText) -> str:
    """Returns the LLVM type of the elements in memory."""
    return f"<{type_.lanes} x {storage_type(element, module.target)}>"


def _mangled(vector: str) -> str:
    """Returns ``<16 x i8>`` as names of intrinsics have it: ``v16i8``."""
    lanes, element = vector.strip("<>").split(" x ")
    return f"v{lanes}{'f32' if element == 'float' else element}"


def _splits_masked(module: ModuleText) -> bool:
    """Returns whether masked loads of bytes become loads of one byte after the other."""
    return module.target.triple.startswith("x86_64")


def _widening(count: int) -> str:
    """Returns the lanes of a shuffle that puts zeros behind ``count`` bytes, up to 16."""
    lanes = ", ".join(f"i32 {lane if lane < count else count}" for lane in range(16))
    return f"<16 x i32> <{lanes}>"


def _first(count: int, lanes: int) -> str:
    """Returns a mask of the first ``count`` lanes."""
    bits = ", ".join(f"i1 {'true' if lane < count else 'false'}" for lane in range(lanes))
    return f"<{bits}>"
