"""Prints statements of an artifact: calls of kernels, and what decides about them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import assert_never

from crtexport.artifact import abi
from crtexport.artifact.model import (
    Arg,
    Artifact,
    BranchStatement,
    ConstantArg,
    ExternalFunction,
    Feed,
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
from crtexport.backends.llvm.calling import Callings, bound_operand
from crtexport.backends.llvm.contexts import ContextPrinter
from crtexport.backends.llvm.entry import (
    main_arity,
    pool_position,
    state_symbol,
    workspace_symbol,
)
from crtexport.backends.llvm.types import ModuleText, comment, value_type
from crtexport.kir.language import Scalar
from crtexport.support.errors import CrtExportError


class StatementPrinter:
    """Prints statements of an artifact in a function whose parameters are checked pointers, as
    those of main: ``%a0`` and so on. Input ``fed`` is the one row that is given, ``%row``."""

    def __init__(
        self, artifact: Artifact, module: ModuleText, callings: Callings, fed: int | None = None
    ) -> None:
        self._artifact = artifact
        self._callings = callings
        self._module = module
        self._fed = fed
        self._contexts = ContextPrinter(artifact, module)
        self._lines: list[str] = self._contexts.activate()
        self._blocks = 0
        self._repeats = 0  # around what is printed
        self._counters: list[str] = []
        self._hidden: dict[str, str] = {}
        if not artifact.workspace_caller and artifact.workspace_size:
            # An address that LLVM can't know: it would put it in kernels, and sums of it and
            # constants into more registers than there are.
            owned = workspace_symbol(artifact)
            self._lines.append(f'  %workspace = call ptr asm "", "=r,0"(ptr @{owned})')

    @property
    def result(self) -> str:
        """Returns the type that the function returns."""
        return "i32" if self._contexts.fails else "void"

    @property
    def lines(self) -> list[str]:
        """Returns the body of the function."""
        return [*self._lines, *self._contexts.finish()]

    def begin(self, lines: Sequence[str]) -> None:
        """Prints what isn't a statement."""
        self._lines += lines

    def statements(self, statements: Sequence[Statement]) -> None:
        """Prints statements in their order."""
        for statement in statements:
            self._statement(statement)

    def cases(
        self, selected: str, cases: Sequence[Sequence[Statement]], counted: Collection[int],
        counter: str,
    ) -> None:
        """Prints the choice of the statements whose number is ``selected``. Those of numbers in
        ``counted`` are the body of a loop, the runs of which ``counter`` has counted."""
        self._repeats += 1
        labels = [(f"case{number}", number) for number, case in enumerate(cases) if case]
        chosen = " ".join(f"i32 {number}, label %{label}" for label, number in labels)
        self._lines.append(f"  switch i32 {selected}, label %all_done [ {chosen} ]")
        for label, number in labels:
            self._counters = [counter] if number in counted else []
            self._block(label, cases[number])
            self._lines.append("  br label %all_done")
        self._lines.append("all_done:")
        self._repeats -= 1

    def _statement(self, statement: Statement) -> None:
        match statement:
            case FunctionCall():
                self._call(statement)
            case BranchStatement():
                self._branch(statement)
            case LoopStatement():
                self._loop(statement)
            case Repeat():
                self._repeat(statement)
            case Feed():
                raise CrtExportError("rows are given outside of the main function")
            case _:
                assert_never(statement)

    def _branch(self, branch: BranchStatement[FunctionCall]) -> None:
        then, other, end = self._labels("then", "else", "end")
        self._test(branch.condition, branch.comment, then, other)
        for label, statements in ((then, branch.then), (other, branch.other)):
            self._block(label, statements)
            self._lines.append(f"  br label %{end}")
        self._lines.append(f"{end}:")

    def _loop(self, loop: LoopStatement[FunctionCall]) -> None:
        test, body, end = self._labels("test", "body", "end")
        self._lines.append(f"  br label %{test}")
        self._block(test, loop.before)
        self._test(loop.condition, loop.comment, body, end)
        self._block(body, loop.body)
        self._lines += [f"  br label %{test}", f"{end}:"]

    def _repeat(self, repeat: Repeat[FunctionCall]) -> None:
        if repeat.comment:
            self._lines.append(f"  {comment(repeat.comment)}")
        self._repeats += 1
        if repeat.times == 1:
            for statement in repeat.body:
                self._statement(statement)
        else:
            self._loop_of(repeat)
        self._repeats -= 1

    def _loop_of(self, repeat: Repeat[FunctionCall]) -> None:
        before, body, end = self._labels("before", "again", "done")
        counter, index = f"%{body}.run", value_type(Scalar.INDEX, self._module.target)
        self._lines += [
            f"  br label %{before}", f"{before}:", f"  br label %{body}", f"{body}:",
            f"  {counter} = phi {index} [ 0, %{before} ], [ {counter}.next, %{body}.end ]",
        ]
        self._counters.append(counter)
        for statement in repeat.body:
            self._statement(statement)
        self._counters.pop()
        self._lines += [
            f"  br label %{body}.end", f"{body}.end:",
            f"  {counter}.next = add {index} {counter}, 1",
            f"  {counter}.more = icmp ult {index} {counter}.next, {repeat.times}",
            f"  br i1 {counter}.more, label %{body}, label %{end}", f"{end}:",
        ]

    def _block(self, label: str, statements: Sequence[Statement]) -> None:
        self._lines.append(f"{label}:")
        for statement in statements:
            self._statement(statement)

    def _labels(self, *names: str) -> list[str]:
        self._blocks += 1
        return [f"{name}{self._blocks}" for name in names]

    def _test(self, condition: Arg, text: str, true: str, false: str) -> None:
        """Branches to one of two blocks by the byte that ``condition`` points to."""
        if text:
            self._lines.append(f"  {comment(text)}")
        pointer = self._operand(condition)
        name = f"%b{len(self._lines)}"
        self._lines += [
            f"  {name} = load i8, {pointer}", f"  {name}.true = icmp ne i8 {name}, 0",
            f"  br i1 {name}.true, label %{true}, label %{false}",
        ]

    def _external(self, call: FunctionCall, function: ExternalFunction) -> None:
        operands = [self._operand(arg) for arg in call.args]
        if call.comment:
            self._lines.append(f"  {comment(call.comment)}")
        self._lines += (
            self._contexts.run_commands(function, operands, call.sizes) if function.commands
            else self._contexts.call(function, operands)
        )

    def _call(self, call: FunctionCall) -> None:
        if (external := self._contexts.function(call.symbol)) is not None:
            self._external(call, external)
            return
        calling = self._callings.of(call.symbol)
        self._hidden.clear()
        operands = ", ".join(
            self._operand(arg) for position, arg in enumerate(call.args)
            if position not in calling.bound
        )
        if call.comment:
            self._lines.append(f"  {comment(call.comment)}")
        self._lines.append(f"  call {calling.convention}void @{call.symbol}({operands})")

    def _operand(self, arg: Arg) -> str:
        inputs = len(self._artifact.inputs)
        pools = main_arity(self._artifact) - len(abi.caller_pools(self._artifact))
        match arg:
            case InputArg():
                base = "%row" if arg.index == self._fed else f"%a{arg.index}"
                return self._pointer(base, arg)
            case OutputArg():
                return self._pointer(f"%a{inputs + arg.index}", arg)
            case WorkspaceArg():
                if self._artifact.workspace_caller:
                    position = pools + pool_position(self._artifact, arg.pool)
                    return self._pointer(f"%a{position}", arg)
                if not arg.pool:
                    return self._pointer("%workspace", arg)
                return self._pointer(f"@{workspace_symbol(self._artifact, arg.pool)}", arg)
            case StateArg():
                if self._artifact.workspace_caller:
                    last = main_arity(self._artifact) - 1
                    return self._pointer(f"%a{last}", arg)
                return self._pointer(f"@{state_symbol(self._artifact)}", arg)
            case ConstantArg():
                return f"ptr {bound_operand(arg, self._module.target)}"
            case ScalarArg():
                type_ = value_type(arg.type, self._module.target)
                return f"{type_} {bound_operand(arg, self._module.target)}"
            case _:
                assert_never(arg)

    def _pointer(
        self, base: str, arg: InputArg | OutputArg | WorkspaceArg | StateArg
    ) -> str:
        """Returns ``base`` plus the bytes of an address, as an operand."""
        index = value_type(Scalar.INDEX, self._module.target)
        moves = [
            (step, counter) for step, counter in zip(arg.steps, self._counters, strict=False)
            if step
        ]
        if self._repeats:
            base = self._unknown(base)
        if not arg.offset and not moves:
            return f"ptr {base}"
        position = f"{index} {arg.offset}"
        if base.startswith("@") and not moves:
            return f"ptr getelementptr inbounds (i8, ptr {base}, {position})"
        for step, counter in moves:
            name = f"%p{len(self._lines)}"
            self._lines.append(f"  {name} = mul {index} {counter}, {step}")
            base, before = f"{name}.moved", base
            self._lines.append(
                f"  {base} = getelementptr inbounds i8, ptr {before}, {index} {name}"
            )
        if not arg.offset:
            return f"ptr {base}"
        name = f"%p{len(self._lines)}"
        self._lines.append(f"  {name} = getelementptr inbounds i8, ptr {base}, {position}")
        return f"ptr {name}"

    def _unknown(self, base: str) -> str:
        """Returns an address, for one call, of which LLVM doesn't know that others have it, too:
        of many calls it would keep all sums of it and constants on the stack."""
        if base not in self._hidden:
            name = self._hidden[base] = f"%h{len(self._lines)}"
            self._lines.append(f'  {name} = call ptr asm "", "=r,0"(ptr {base})')
        return self._hidden[base]


def internal_function(
    symbol: str, pointers: Sequence[str], printer: StatementPrinter, numbers: Sequence[str] = ()
) -> str:
    """Returns the definition of a function of a model of its own, with such parameters."""
    params = [f"ptr noundef {name}" for name in pointers] + [f"i32 noundef {n}" for n in numbers]
    head = f"define internal {printer.result} @{symbol}({', '.join(params)}) noinline #0"
    return "\n".join([f'{head} section ".text.{symbol}" {{', *printer.lines, "}", ""])
