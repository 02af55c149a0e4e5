"""Prints calls of external functions, and the device hooks around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from crtexport.artifact.call_checks import check_calls
from crtexport.artifact.contexts import (
    Verb,
    called_externals,
    hook,
    image_of,
    launched,
)
from crtexport.artifact.model import MAX_ADDRESSES, Artifact, ExternalFunction
from crtexport.backends.llvm.devices import function_row, print_decoding, row_of
from crtexport.backends.llvm.types import ModuleText, value_type
from crtexport.kir.language import Scalar


def context_parameters(artifact: Artifact) -> list[str]:
    """Returns the last parameters of the main function: a context for each device."""
    return [f"%d{number}" for number in range(len(artifact.devices))]


class ContextPrinter:
    """The devices of a model in its main function, which returns a status if anything in it can
    fail."""

    def __init__(self, artifact: Artifact, module: ModuleText) -> None:
        self._artifact = artifact
        self._devices = artifact.devices
        self._rows = {f.symbol: row for row, f in enumerate(launched(artifact))}
        self._module = module
        self._count = 0
        self._all = check_calls(artifact)
        self.fails = bool(called_externals(artifact))

    def function(self, symbol: str) -> ExternalFunction | None:
        return self._all.get(symbol)

    def activate(self) -> list[str]:
        """Returns the instructions at the beginning."""
        lines = ["  %status = alloca i32", "  store i32 0, ptr %status"] if self.fails else []
        if self._artifact.images:
            lines.append("  %program = alloca ptr")
        for name, size in (("given", self._most("inputs")), ("made", self._most("outputs"))):
            if size:
                lines.append(f"  %{name} = alloca [{size} x ptr]")
        if any(function.commands for function in self._all.values()):
            lines += [
                f"  %addresses = alloca [{MAX_ADDRESSES} x i64]",
                f"  %sizes = alloca [{MAX_ADDRESSES} x {self._index}]",
            ]
        for number in range(len(self._devices)):
            lines += self._hook(number, "Activate", number)
        return lines

    def call(self, function: ExternalFunction, operands: Sequence[str]) -> list[str]:
        """Returns instructions that call ``function``, with its device open."""
        active, device = len(self._devices), function.device
        if device is None:
            code = self._fresh()
            return [*self._called(function, operands, code), *self._leave(code, active)]
        lines = self._hook(device, "Open", active)
        code = self._fresh()
        if image_of(self._artifact, device) is None:
            lines += self._run(function, operands, code)
        else:
            lines += self._loaded(function, operands, code)
        both, closing = self._first(code, device, "Close")
        return [*lines, *closing, *self._leave(both, active)]

    def run_commands(
        self, function: ExternalFunction, operands: Sequence[str], sizes: Sequence[int]
    ) -> list[str]:
        """Returns instructions that have ``function`` run commands; the operands are pointers, the
        commands first, with so many bytes behind each."""
        lines, index = [], self._index
        for position, (operand, size) in enumerate(zip(operands[1:], sizes[1:], strict=True)):
            address, place, room = self._fresh(), self._fresh(), self._fresh()
            lines += [
                f"  {address} = ptrtoint {operand} to i64",
                f"  {place} = getelementptr inbounds i64, ptr %addresses, i32 {position}",
                f"  store i64 {address}, ptr {place}",
                f"  {room} = getelementptr inbounds {index}, ptr %sizes, i32 {position}",
                f"  store {index} {size}, ptr {room}",
            ]
        given = [
            operands[0], f"{index} {sizes[0]}", "ptr %addresses", "ptr %sizes",
            f"i32 {len(operands) - 1}",
        ]
        return [*lines, *self.call(function, given)]

    @property
    def _index(self) -> str:
        return value_type(Scalar.INDEX, self._module.target)

    def _loaded(
        self, function: ExternalFunction, operands: Sequence[str], code: str
    ) -> list[str]:
        """Returns instructions that load the program of the function's device and call the
        function; ``code`` is the status of both."""
        device = function.device or 0
        names = self._fresh(), self._fresh()
        opened, loading, loaded = names[1], self._fresh(), self._fresh()
        program, ran, label = self._fresh(), self._fresh(), f"close{self._count}"
        symbol = hook(self._devices[device], "Load")
        self._module.declare(f"declare i32 @{symbol}(ptr, ptr, ptr)")
        given = f"ptr %d{device}, {row_of(self._artifact, device)}, ptr {program}"
        return [
            *print_decoding(self._artifact, self._module, device, names),
            *self._on(opened, loading, label),
            f"  {program} = load ptr, ptr %program",
            f"  {loaded} = call i32 @{symbol}({given})",
            *self._on(loaded, loaded, label),
            *self._run(function, operands, ran),
            f"  store i32 {ran}, ptr %status",
            f"  br label %{label}", f"{label}:",
            f"  {code} = load i32, ptr %status",
        ]

    def _on(self, code: str, name: str, otherwise: str) -> list[str]:
        """Continues where ``code`` is 0, branches elsewhere otherwise; either way the code is the
        status."""
        good, label = self._fresh(), f"on.{name.removeprefix('%')}"
        return [
            f"  store i32 {code}, ptr %status",
            f"  {good} = icmp eq i32 {code}, 0",
            f"  br i1 {good}, label %{label}, label %{otherwise}", f"{label}:",
        ]

    def _run(self, function: ExternalFunction, operands: Sequence[str], code: str) -> list[str]:
        """Calls a function on its device, which is open."""
        if function.entry is None:
            return self._called(function, operands, code)
        context = f"ptr %d{function.device}"
        lines = []
        sides = (("given", operands[: function.inputs]), ("made", operands[function.inputs :]))
        for name, values in sides:
            for number, value in enumerate(values):
                place = self._fresh()
                lines += [
                    f"  {place} = getelementptr inbounds ptr, ptr %{name}, i32 {number}",
                    f"  store {value}, ptr {place}",
                ]
        symbol = hook(self._devices[function.device or 0], "Launch")
        self._module.declare(f"declare i32 @{symbol}(ptr, ptr, ptr, ptr)")
        arrays = [f"ptr %{name}" if values else "ptr null" for name, values in sides]
        row = function_row(self._artifact, self._rows[function.symbol])
        return [*lines, f"  {code} = call i32 @{symbol}({context}, {row}, {', '.join(arrays)})"]

    def _called(
        self, function: ExternalFunction, operands: Sequence[str], code: str
    ) -> list[str]:
        """Calls a function with the context of its device, if it has one."""
        context = [] if function.device is None else [f"ptr %d{function.device}"]
        given = [*operands, *context]
        if function.commands:
            given = [*(context or ["ptr null"]), *operands]
        types = ", ".join(operand.split()[0] for operand in given)
        self._module.declare(f"declare i32 @{function.symbol}({types})")
        return [f"  {code} = call i32 @{function.symbol}({', '.join(given)})"]

    def _most(self, side: Literal["inputs", "outputs"]) -> int:
        """Returns the largest number of pointers that a hook gets."""
        return max((getattr(f, side) for f in launched(self._artifact)), default=0)

    def finish(self) -> list[str]:
        """Returns the instructions at the end, with the blocks of failures."""
        if not self.fails:
            return ["  ret void"]
        lines: list[str] = []
        for number in reversed(range(len(self._devices))):
            code = self._fresh()
            both, deactivating = self._first(code, number, "Deactivate")
            lines += [
                f"  br label %deactivate{number + 1}", f"deactivate{number + 1}:",
                f"  {code} = load i32, ptr %status", *deactivating,
                f"  store i32 {both}, ptr %status",
            ]
        result = self._fresh()
        return [
            *lines, "  br label %deactivate0", "deactivate0:",
            f"  {result} = load i32, ptr %status", f"  ret i32 {result}",
        ]

    def _hook(self, number: int, verb: Verb, active: int) -> list[str]:
        code = self._fresh()
        return [f"  {code} = {self._invoked(number, verb)}", *self._leave(code, active)]

    def _first(self, code: str, number: int, verb: Verb) -> tuple[str, list[str]]:
        """Returns a name for the first code of ``code`` and a hook that isn't 0, and the
        instructions that compute it."""
        other, good, both = self._fresh(), self._fresh(), self._fresh()
        return both, [
            f"  {other} = {self._invoked(number, verb)}",
            f"  {good} = icmp eq i32 {code}, 0",
            f"  {both} = select i1 {good}, i32 {other}, i32 {code}",
        ]

    def _invoked(self, number: int, verb: Verb) -> str:
        symbol = hook(self._devices[number], verb)
        self._module.declare(f"declare i32 @{symbol}(ptr)")
        return f"call i32 @{symbol}(ptr %d{number})"

    def _leave(self, code: str, active: int) -> list[str]:
        """Leaves with a ``code`` that isn't 0, while so many devices are active."""
        good, label = self._fresh(), f"good{self._count}"
        return [
            f"  store i32 {code}, ptr %status",
            f"  {good} = icmp eq i32 {code}, 0",
            f"  br i1 {good}, label %{label}, label %deactivate{active}", f"{label}:",
        ]

    def _fresh(self) -> str:
        self._count += 1
        return f"%x{self._count}"
