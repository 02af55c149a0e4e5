"""Prints functions that consist of given instructions, as inline assembly of GNU C."""

from __future__ import annotations

from collections.abc import Iterator

from crtexport.backends.c.literals import STORAGE
from crtexport.kir.assembly.assemble import Assembled
from crtexport.kir.language import Body, For, Kernel, Let, Local
from crtexport.kir.walk import expressions, variables, walk

_CHANGED = '"r0", "r1", "r2", "r3", "r12", "lr", "cc", "memory"'


def function(name: str, assembled: Assembled, kernel: Kernel) -> str:
    """Returns the definition of a naked function with the given instructions, to which compilers
    add none."""
    buffers = {buffer.name: buffer for buffer in kernel.buffers}
    params = []
    for number, argument in enumerate(assembled.arguments):
        type_ = "int32_t "
        if argument.buffer:
            buffer = buffers[argument.buffer]
            type_ = f"{'' if buffer.writable else 'const '}{STORAGE[buffer.dtype]} *"
        params.append(f"    {type_}{argument.name}_{number} CRT_GIVEN")
    lines = [
        f'        "{line}\\n"' if line.endswith(":") else f'        "\\t{line}\\n"'
        for line in assembled.lines
    ]
    return "\n".join([
        "#if CRT_ASSEMBLY", "__attribute__((naked, noinline))", f"static void {name}(",
        ",\n".join(params) + ")", "{", "    __asm__ volatile (", *lines,
        f"        : : : {_CHANGED});", "}", "#endif",
    ])


def idle(loop: For, assembled: Assembled) -> Iterator[str]:
    """Yields the variables from outside of ``loop`` that only its C code uses, but not the call of
    the function with its instructions, so that compilers could warn about them."""
    named = {
        name for stmt in (loop, *walk(loop.body)) for expr in expressions(stmt)
        for name in variables(expr)
    }
    inside = {loop.var.name, *_defined(loop.body)}
    passed = {name for argument in assembled.arguments for name in variables(argument.index)}
    yield from sorted(named - inside - passed)


def _defined(body: Body) -> Iterator[str]:
    for stmt in walk(body):
        if isinstance(stmt, Let | Local | For):
            yield stmt.var.name
