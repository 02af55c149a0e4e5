"""Kernels without the copies of an input that lies where the output is: those that copy a whole
input, then write over a part of it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from msgspec.structs import replace

from crtexport.kir.language import Body, Buffer, For, Load, Reading, Stmt, Store
from crtexport.kir.walk import expressions, walk, walk_expr
from crtexport.lowering.registry import InputTensor, Lowered, OutputTensor


def without_self_copies(lowered: Lowered, pairs: Iterable[tuple[int, int]]) -> Lowered:
    """Returns ``lowered`` without loops that copy elements to where they are, and without buffers
    that nothing else reads. ``pairs``: positions of an output and an input that lie in the same
    place, byte for byte."""
    for output, position in pairs:
        buffers = dict(zip(lowered.args, lowered.kernel.buffers, strict=True))
        source = buffers.get(InputTensor(position))
        target = buffers.get(OutputTensor(output))
        if source is not None and target is not None and source.dtype is target.dtype:
            lowered = _without(lowered, source, target)
    return lowered


def _without(lowered: Lowered, source: Buffer, target: Buffer) -> Lowered:
    kernel = lowered.kernel
    body = tuple(stmt for stmt in kernel.body if not _copies(stmt, source, target))
    if len(body) == len(kernel.body):
        return lowered
    read = _read(body)
    kept = [
        (buffer, arg) for buffer, arg in zip(kernel.buffers, lowered.args, strict=True)
        if buffer is not source or source.name in read
    ]
    return Lowered(
        replace(
            kernel, body=body, buffers=tuple(buffer for buffer, _ in kept),
            overlapping=tuple(n for n in kernel.overlapping if n != source.name or n in read),
        ),
        tuple(arg for _, arg in kept),
    )


def _copies(stmt: Stmt, source: Buffer, target: Buffer) -> bool:
    """Returns whether a statement is a loop that does nothing but that."""
    while isinstance(stmt, For) and len(stmt.body) == 1:
        stmt = stmt.body[0]
        if isinstance(stmt, Store):
            return stmt.buffer == target and stmt.value == Load(source, stmt.index)
    return False


def _read(body: Body) -> set[str]:
    """Returns the names of the buffers that anything reads."""
    found = chain.from_iterable(expressions(stmt) for stmt in walk(body))
    return {
        part.buffer.name for expr in found for part in walk_expr(expr) if isinstance(part, Reading)
    }
