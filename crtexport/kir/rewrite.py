"""Kernels with their constants and buffers replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from crtexport.kir import language as kir
from crtexport.kir.language import Body, Buffer, Expr, Kernel, Stmt
from crtexport.kir.walk import map_bodies, map_expressions, map_operands

_Access = TypeVar("_Access", bound=kir.Touching)


def substitute(kernel: Kernel, numbers: Iterable[Expr], buffers: Mapping[str, Buffer]) -> Kernel:
    """Returns ``kernel`` with ``numbers`` for its constants, in the order of the text, which is
    that of :func:`crtexport.kir.analysis.constant_skeleton.skeleton`, and with ``buffers`` by name.
    """
    following = iter(numbers)

    def body(old: Body) -> Body:
        return tuple(map(stmt, old))

    def stmt(old: Stmt) -> Stmt:
        new = map_bodies(map_expressions(old, expr), body)
        return on_buffer(new) if isinstance(new, (kir.Store, kir.StoreVector)) else new

    def expr(old: Expr) -> Expr:
        if isinstance(old, kir.Const):
            return next(following)
        new = map_operands(old, expr)
        return on_buffer(new) if isinstance(new, kir.Reading) else new

    def on_buffer(old: _Access) -> _Access:
        return replace(old, buffer=buffers[old.buffer.name])

    return replace(
        kernel, buffers=tuple(buffers[b.name] for b in kernel.buffers), body=body(kernel.body)
    )
