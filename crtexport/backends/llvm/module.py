"""Prints an artifact as LLVM modules, one for each object of the package.

``lib0`` holds kernels, the workspace and the two ways to run the model; ``lib1`` the metadata that
TVM's executors ask for; ``lib2`` the function registry; from ``lib3`` on kernels, if they are split
off. No table needs anything to happen before the first call. Constants are declared only:
:mod:`crtexport.backends.constants` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

from crtexport.artifact import abi
from crtexport.artifact.model import (
    Arg,
    Artifact,
    Branch,
    Constant,
    ConstantArg,
    ExternalFunction,
    Function,
    FunctionCall,
    InputArg,
    Loop,
    OutputArg,
    Repeat,
    ScalarArg,
    StateArg,
    Statement,
    WorkspaceArg,
)
from crtexport.backends.constants import stored_chunks
from crtexport.backends.llvm.calling import Callings, bound_operand
from crtexport.backends.llvm.contexts import ContextPrinter, context_parameters
from crtexport.backends.llvm.devices import print_device_tables
from crtexport.backends.llvm.entry import (
    main_arity,
    main_symbol,
    pool_position,
    print_packed,
    print_packed_reset,
    print_reset,
    print_run,
    shared_workspace_symbol,
    state_symbol,
    workspace_symbol,
)
from crtexport.backends.llvm.kernel import Linkage, declare_kernel, print_kernel
from crtexport.backends.llvm.maps import print_maps
from crtexport.backends.llvm.split import partition
from crtexport.backends.llvm.tables import print_metadata, print_registry
from crtexport.backends.llvm.types import (
    ModuleText,
    bytes_literal,
    comment,
    value_type,
)
from crtexport.backends.modules import SPLITS, Module, Split
from crtexport.kir.language import Scalar
from crtexport.support.errors import CrtExportError
from crtexport.support.target import Target

_FIRST_OF_KERNELS = 3  # also where there is no registry
_SMALL = 256
"""Bytes of a constant whose values code may use without loading them."""


def emit_llvm(artifact: Artifact, target: Target, optimize: str) -> dict[str, str]:
    """Returns file names (``<module>_lib0.ll`` …) and texts of the modules, in the order of the
    package.

    Nothing is split; errors as of :func:`llvm_modules`.
    """
    return {f"{m.name}.ll": text for m, text in llvm_modules(artifact, target, optimize).items()}


def llvm_modules(
    artifact: Artifact, target: Target, optimize: str, split: Split = "none"
) -> dict[Module, str]:
    """Returns the LLVM modules of ``artifact`` and their texts, in the order of the package.

    ``optimize`` is size, balanced or speed; ``split`` selects the kernels that get modules of their
    own (:func:`.split.partition`). Raises CrtExportError for an unknown choice of either, and
    for a kernel or a registry name that can't be printed.
    """
    return dict(printed_modules(artifact, target, optimize, split))


def printed_modules(
    artifact: Artifact, target: Target, optimize: str, split: Split = "none"
) -> Iterator[tuple[Module, str]]:
    """Yields the results of :func:`llvm_modules`, each as soon as it is printed."""
    if split not in SPLITS:
        raise CrtExportError(
            f"there is no way to split modules called {split}",
            hint=f"choose one of {', '.join(SPLITS)}",
        )

    def fresh() -> ModuleText:
        return ModuleText(target, optimize)

    callings = Callings(artifact)
    staying, *leaving = partition(artifact, split, callings.alone)
    name = artifact.module
    yield (
        Module(f"{name}_lib0", "model", _symbols(staying)),
        _code(artifact, fresh(), f"{name}_lib0.ll", staying, callings),
    )
    yield (
        Module(f"{name}_lib1", "metadata"), print_metadata(artifact, fresh(), f"{name}_lib1.ll")
    )
    if artifact.system_lib:
        yield (
            Module(f"{name}_lib2", "registry"),
            print_registry(artifact, fresh(), f"{name}_lib2.ll"),
        )
    for number, group in enumerate(leaving, _FIRST_OF_KERNELS):
        own = Module(f"{name}_lib{number}", "kernels", _symbols(group))
        yield own, _kernels(artifact, fresh(), f"{own.name}.ll", group, callings)


def _symbols(functions: Sequence[Function]) -> tuple[str, ...]:
    return tuple(function.symbol for function in functions)


def _code(
    artifact: Artifact, module: ModuleText, name: str, staying: Sequence[Function],
    callings: Callings,
) -> str:
    body = _named_registry(artifact)
    body += [_constant(c, module.target) for c in artifact.reached_constants]
    if not artifact.workspace_caller:
        body += _memory(artifact)
    if artifact.images:
        body += print_device_tables(artifact, module)
    body.append("")
    for function in artifact.functions:
        symbol, kernel, own = function.symbol, function.kernel, callings.of(function.symbol)
        if function in staying:
            linkage: Linkage = "hidden" if symbol in artifact.common.lent else "internal"
            body.append(print_kernel(symbol, kernel, module, linkage, own))
        else:
            module.declare(declare_kernel(symbol, kernel, module, own))
    body += [_Main(artifact, module, callings).text(), print_run(artifact)]
    body.append(print_packed(artifact, module))
    body += print_maps(artifact, module)
    if artifact.state_size:
        body += [print_reset(artifact, module), print_packed_reset(artifact, module)]
    return module.text(name, artifact.header_comment, body)


def _named_registry(artifact: Artifact) -> list[str]:
    """Returns a reference that makes linkers take the object with the function registry wherever
    they take this one, so that they report two registries in one program: its name, in a section
    that they read and leave out."""
    system_lib = artifact.common.system_lib
    if not system_lib:
        return []
    own = f"{artifact.prefix}.registry_needed"
    return [
        f"@{system_lib} = external hidden constant {{ ptr }}",
        f'@{own} = internal constant ptr @{system_lib}, section ".crt_registry", !exclude !{{}}',
        f'@llvm.compiler.used = appending global [1 x ptr] [ptr @{own}], section "llvm.metadata"',
    ]


def _memory(artifact: Artifact) -> list[str]:
    """Returns the workspace and state that the model owns."""
    shared = artifact.common.workspace
    own = [(state_symbol(artifact), artifact.state_size)]
    if shared is None:
        own[:0] = [
            (workspace_symbol(artifact, number), size)
            for number, _, size in abi.workspaces(artifact)
        ]
    lines = [
        f"@{symbol} = internal global [{size} x i8] zeroinitializer, "
        f'section ".bss.{symbol}", align {artifact.workspace_align}'
        for symbol, size in own if size
    ]
    if shared is None:
        return lines
    for end, size in shared.pools:
        symbol = shared_workspace_symbol(shared, end)
        here = shared.prefix == artifact.prefix
        lines.append(
            f"@{symbol} = {'' if here else 'external '}hidden global [{size} x i8]"
            + (f' zeroinitializer, section ".bss.{symbol}"' if here else "")
            + f", align {shared.align}"
        )
    return lines


def _kernels(
    artifact: Artifact, module: ModuleText, name: str, functions: Sequence[Function],
    callings: Callings,
) -> str:
    """Returns a module of kernels only; the linker keeps them out of a library's interface."""
    reached = callings.constants(f.symbol for f in functions)
    body = [_constant(c, module.target) for c in artifact.constants if c.symbol in reached]
    body += [
        print_kernel(f.symbol, f.kernel, module, "hidden", callings.of(f.symbol)) for f in functions
    ]
    return module.text(name, artifact.header_comment, body)


def _constant(constant: Constant, target: Target) -> str:
    """Returns the declaration of a constant, which is in an object of its own.

    LLVM sees the values of small ones, which may end as immediates in the code. On x86-64 their
    addresses come from the table that linkers make, so that constants may be any distance away;
    linkers take that detour out again where they are near.
    """
    hidden = "" if target.triple.startswith("x86_64-") else "hidden "
    size = constant.count * constant.dtype.itemsize
    linkage, value = "external", ""
    if size <= _SMALL:
        linkage = "available_externally"
        value = " " + bytes_literal(b"".join(stored_chunks(constant, target.little_endian)))
    lines = [comment(constant.comment)] if constant.comment else []
    lines.append(
        f"@{constant.symbol} = {linkage} {hidden}constant [{size} x i8]{value}, "
        f"align {constant.align}"
    )
    return "\n".join(lines)


class _Main:
    """The internal function that calls every kernel; its parameters are checked pointers."""

    def __init__(self, artifact: Artifact, module: ModuleText, callings: Callings) -> None:
        self._artifact = artifact
        self._callings = callings
        self._module = module
        self._contexts = ContextPrinter(artifact, module)
        self._lines: list[str] = self._contexts.activate()
        self._blocks = 0
        self._repeats = 0  # around what is printed
        self._counters: list[str] = []
        self._hidden: dict[str, str] = {}

    def text(self) -> str:
        if not self._artifact.workspace_caller and self._artifact.workspace_size:
            # An address that LLVM can't know: it would put it in kernels, and sums of it and
            # constants into more registers than there are.
            owned = workspace_symbol(self._artifact)
            self._lines.append(f'  %workspace = call ptr asm "", "=r,0"(ptr @{owned})')
        for statement in self._artifact.calls:
            self._statement(statement)
        names = [f"%a{i}" for i in range(main_arity(self._artifact))]
        names += context_parameters(self._artifact)
        params = ", ".join(f"ptr noundef {name}" for name in names)
        symbol = main_symbol(self._artifact)
        result = "i32" if self._contexts.fails else "void"
        return "\n".join([
            f'define internal {result} @{symbol}({params}) noinline #0 section ".text.{symbol}" {{',
            *self._lines, *self._contexts.finish(), "}", "",
        ])

    def _statement(self, statement: Statement) -> None:
        match statement:
            case FunctionCall():
                self._call(statement)
            case Branch():
                self._branch(statement)
            case Loop():
                self._loop(statement)
            case Repeat():
                self._repeat(statement)
            case _:
                assert_never(statement)

    def _branch(self, branch: Branch[FunctionCall]) -> None:
        then, other, end = self._labels("then", "else", "end")
        self._test(branch.condition, branch.comment, then, other)
        for label, statements in ((then, branch.then), (other, branch.other)):
            self._block(label, statements)
            self._lines.append(f"  br label %{end}")
        self._lines.append(f"{end}:")

    def _loop(self, loop: Loop[FunctionCall]) -> None:
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
                return self._pointer(f"%a{arg.index}", arg)
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
