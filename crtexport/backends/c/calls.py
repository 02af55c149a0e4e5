"""Prints the calls of a model's run function: which kernel gets which pointers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from crtexport.artifact import abi
from crtexport.artifact.call_checks import check_calls
from crtexport.artifact.model import (
    Arg,
    Artifact,
    BranchStatement,
    Constant,
    ConstantArg,
    ExternalFunction,
    Feed,
    Function,
    FunctionCall,
    InputArg,
    LoopStatement,
    OutputArg,
    Repeat,
    ScalarArg,
    StateArg,
    Statement,
    WorkspaceArg,
)
from crtexport.backends.c.arrays import element_type
from crtexport.backends.c.contexts import Contexts
from crtexport.backends.c.literals import LINE, STORAGE, layer_comment, literal
from crtexport.kir.language import Scalar
from crtexport.support.errors import CrtExportError

_INDENT = "    "
ROW = "row"
"""The name of the pointer to the current row."""


class Caller:
    """Prints statements of an artifact.

    ``workspace`` and ``state`` name ``uint8_t`` arrays or pointers; ``table`` is an array of
    pointers to :attr:`Artifact.reached_constants`, if those are in linked objects. ``of_row``: the
    input is the one row ``row``. Raises CrtExportError if arguments don't fit the kernel, or if a
    kernel would write to an input or a constant.
    """

    def __init__(
        self, artifact: Artifact, workspace: str, state: str = "state", table: str | None = None,
        *, of_row: bool = False,
    ) -> None:
        self._artifact = artifact
        self._workspace, self._of_row = workspace, of_row
        self._ends = {number: end for number, end, _ in abi.workspaces(artifact)}
        self._state = state
        self._functions: dict[str, Function] = {f.symbol: f for f in artifact.functions}
        self._externals = check_calls(artifact)
        self._contexts = Contexts(artifact)
        self._counters: list[str] = []
        self._constants: dict[str, Constant] = {c.symbol: c for c in artifact.constants}
        self._linked = {} if table is None else {
            c.symbol: f"{table}[{index}]" for index, c in enumerate(artifact.reached_constants)
        }

    def statements(
        self, statements: Sequence[Statement], indent: str = _INDENT, counter: str | None = None
    ) -> list[str]:
        """Returns the lines of statements in their order, each with its comment, indented by
        ``indent``; statements that run conditionally are inside the statement that decides.
        ``counter`` is the variable that counts the iterations of the loop around them."""
        self._counters = [counter] if counter is not None else []
        return [self.statement(statement, indent) for statement in statements]

    def statement(self, statement: Statement, indent: str) -> str:
        """Returns the lines of a statement, indented by ``indent``."""
        comment = [layer_comment([statement.comment], indent)] if statement.comment else []
        match statement:
            case FunctionCall():
                lines = [self._call(statement, indent)]
            case BranchStatement():
                lines = [f"{indent}if ({self._byte(statement.condition)} != 0) {{"]
                lines += self._inside(statement.then, indent)
                if statement.other:
                    lines.append(f"{indent}}} else {{")
                    lines += self._inside(statement.other, indent)
                lines.append(f"{indent}}}")
            case LoopStatement():
                further = indent + _INDENT
                lines = [f"{indent}for (;;) {{", *self._inside(statement.before, indent)]
                lines += [
                    f"{further}if ({self._byte(statement.condition)} == 0) {{",
                    f"{further}{_INDENT}break;", f"{further}}}",
                    *self._inside(statement.body, indent), f"{indent}}}",
                ]
            case Repeat():
                lines = self._repeat(statement, indent)
            case Feed():
                raise CrtExportError("rows are given outside of the run function")
            case _:
                assert_never(statement)
        return "\n".join([*comment, *lines])

    def _repeat(self, repeat: Repeat[FunctionCall], indent: str) -> list[str]:
        if repeat.times == 1:
            return [f"{indent}{{", *self._inside(repeat.body, indent), f"{indent}}}"]
        counter = f"run{len(self._counters)}" if self._counters else "run"
        self._counters.append(counter)
        body = self._inside(repeat.body, indent)
        self._counters.pop()
        return [
            f"{indent}for (uint32_t {counter} = 0u; {counter} < {repeat.times}u; ++{counter}) {{",
            *body, f"{indent}}}",
        ]

    def _inside(self, statements: Sequence[Statement], indent: str) -> list[str]:
        return [self.statement(statement, indent + _INDENT) for statement in statements]

    def _byte(self, arg: Arg) -> str:
        """Returns the byte that ``arg`` points to."""
        match arg:
            case WorkspaceArg():
                return f"{self._pool(arg)}[{self._index(arg)}]"
            case StateArg():
                return f"{self._state}[{self._index(arg)}]"
            case InputArg() | OutputArg():
                base, offset = self._base(arg), self._index(arg)
                return f"((const uint8_t *){base})[{offset}]"
            case ConstantArg() | ScalarArg():
                raise CrtExportError("a condition never changes", location=self._artifact.module)
            case _:
                assert_never(arg)

    def _pool(self, arg: WorkspaceArg) -> str:
        """Returns the array or pointer of a pool of the workspace."""
        return self._workspace + self._ends[arg.pool]

    def _base(self, arg: InputArg | OutputArg) -> str:
        match arg:
            case InputArg(index):
                return ROW if self._of_row else f"inputs->{self._artifact.inputs[index].field}"
            case OutputArg(index):
                return f"outputs->{self._artifact.outputs[index].field}"

    def _index(self, arg: InputArg | OutputArg | WorkspaceArg | StateArg) -> str:
        """Returns the index, in its buffer, of the byte at an address."""
        moves = [
            f"{step}u * {counter}" if step > 0 else f"-{-step}u * {counter}"
            for step, counter in zip(arg.steps, self._counters, strict=False) if step
        ]
        if not moves:
            return str(arg.offset)
        return " + ".join([f"{arg.offset}u", *moves]).replace("+ -", "- ")

    def _commands(self, call: FunctionCall, function: ExternalFunction, indent: str) -> str:
        """Returns a block with the table of addresses, whatever memory they are in."""
        commands, *others = [self._arg(call, arg) for arg in call.args]
        further = indent + _INDENT
        count = len(others)
        lines = [f"{indent}{{", f"{further}uint64_t addresses[{count}] = {{"]
        lines += [f"{further}{_INDENT}(uintptr_t){other}," for other in others]
        sizes = ", ".join(f"{size}u" for size in call.sizes[1:])
        lines += [f"{further}}};", f"{further}size_t sizes[{count}] = {{{sizes}}};"]
        args = [f"(void *)(uintptr_t){commands}", f"{call.sizes[0]}u", "addresses", "sizes",
                str(count)]
        return "\n".join([*lines, *self._contexts.call(function, args, further), f"{indent}}}"])

    def _external(self, call: FunctionCall, function: ExternalFunction, indent: str) -> str:
        if function.commands:
            return self._commands(call, function, indent)
        args = [self._arg(call, arg) for arg in call.args]
        return "\n".join(self._contexts.call(function, args, indent))

    def _call(self, call: FunctionCall, indent: str) -> str:
        if call.symbol in self._externals:
            return self._external(call, self._externals[call.symbol], indent)
        kernel = self._functions[call.symbol].kernel
        elements = [buffer.dtype for buffer in kernel.buffers] + [Scalar.U8] * len(kernel.params)
        args = [
            self._arg(call, arg, dtype) for arg, dtype in zip(call.args, elements, strict=True)
        ]
        line = f"{call.symbol}({', '.join(args)});"
        if len(line) > LINE - len(indent):
            further = indent + _INDENT
            line = f"{call.symbol}(\n{further}" + f",\n{further}".join(args) + ");"
        return indent + line

    def _arg(self, call: FunctionCall, arg: Arg, element: Scalar = Scalar.U8) -> str:
        """Returns a number, or a pointer to values of type ``element``."""
        match arg:
            case InputArg() | OutputArg():
                return _advanced(self._base(arg), self._index(arg), isinstance(arg, InputArg))
            case ScalarArg(value, dtype):
                return literal(value, dtype)
            case WorkspaceArg():
                return f"(void *)&{self._pool(arg)}[{self._index(arg)}]"
            case StateArg():
                return f"(void *)&{self._state}[{self._index(arg)}]"
            case ConstantArg(symbol, offset):
                constant = self._constants.get(symbol)
                if constant is None:
                    raise CrtExportError(
                        f"the call of {call.symbol!r} is wrong: there is no constant {symbol!r}",
                        location=self._artifact.module,
                    )
                if symbol in self._linked:
                    place = self._linked[symbol]
                    return place if offset == 0 else _advanced(place, str(offset), True)
                if offset == 0 and element_type(constant) == STORAGE[element]:
                    return symbol
                return _advanced(symbol, str(offset), True)
            case _:
                assert_never(arg)


def _advanced(pointer: str, offset: str, const: bool) -> str:
    """Returns ``pointer`` plus ``offset`` bytes, as an untyped pointer."""
    word = "const " if const else ""
    if offset == "0" and ("->" in pointer or pointer == ROW):
        return pointer
    if offset == "0":
        return f"({word}void *){pointer}"
    if " " in offset:
        offset = f"({offset})"
    return f"({word}void *)(({word}uint8_t *){pointer} + {offset})"
