"""Prints calls of functions that something else compiled, and the device hooks around them."""

from __future__ import annotations

from collections.abc import Sequence

from crtexport.artifact.contexts import VERBS, Verb, context_fields, hook
from crtexport.artifact.model import Artifact, ExternalFunction
from crtexport.backends.c_literals import LINE

_INDENT = "    "


class Contexts:
    """The devices of a model as its run function sees them."""

    def __init__(self, artifact: Artifact) -> None:
        self._devices = artifact.devices
        self._fields = context_fields(artifact.devices)

    def prototypes(self, externals: Sequence[ExternalFunction]) -> list[str]:
        """Declarations of hooks and external functions, each once."""
        hooks = [
            f"int32_t {hook(device, verb)}(void *context);"
            for device in self._devices for verb in VERBS
        ]
        return [*dict.fromkeys(hooks), *map(_prototype, externals)]

    def activate(self) -> list[str]:
        """Statements at the begin of ``run``."""
        lines: list[str] = []
        for number in range(len(self._devices)):
            lines += [
                f"{_INDENT}status = {self._hook(number, 'Activate')};",
                *self._leave(_INDENT, number),
            ]
        return lines

    def call(self, function: ExternalFunction, args: Sequence[str], indent: str) -> list[str]:
        """Statements that call ``function``, with its device open."""
        device = function.device
        active = len(self._devices)
        if device is None:
            return [*_assigned(function.symbol, args, indent), *self._leave(indent, active)]
        return [
            f"{indent}status = {self._hook(device, 'Open')};",
            *self._leave(indent, active),
            *_assigned(function.symbol, [*args, self._context(device)], indent),
            f"{indent}status = crt_first({self._closing(device, 'Close')});",
            *self._leave(indent, active),
        ]

    def deactivate(self) -> list[str]:
        """Statements at the end of ``run``, with the labels that failures go to."""
        lines: list[str] = []
        for number in reversed(range(len(self._devices))):
            # The innermost label is for failing functions, the others for failing activations.
            lines += [
                f"deactivate_{number + 1}:",
                f"{_INDENT}status = crt_first({self._closing(number, 'Deactivate')});",
            ]
        return lines

    def _leave(self, indent: str, active: int) -> list[str]:
        """Leaves ``run`` with a code that isn't 0, while so many devices are active."""
        how = f"goto deactivate_{active};" if active else "return status;"
        return [f"{indent}if (status != 0) {{", f"{indent}{_INDENT}{how}", f"{indent}}}"]

    def _context(self, number: int) -> str:
        return f"devices->{self._fields[number]}"

    def _hook(self, number: int, verb: Verb) -> str:
        return f"{hook(self._devices[number], verb)}({self._context(number)})"

    def _closing(self, number: int, verb: Verb) -> str:
        return f"status, {self._hook(number, verb)}"


def _prototype(function: ExternalFunction) -> str:
    parameters = ["const void *"] * function.inputs + ["void *"] * function.outputs
    parameters += ["const void *"] * function.constants
    if function.device is not None:
        parameters.append("void *context")
    line = f"int32_t {function.symbol}({', '.join(parameters) or 'void'});"
    if len(line) <= LINE:
        return line
    return f"int32_t {function.symbol}(\n{_INDENT}" + f",\n{_INDENT}".join(parameters) + ");"


def _assigned(symbol: str, args: Sequence[str], indent: str) -> list[str]:
    line = f"{indent}status = {symbol}({', '.join(args)});"
    if len(line) <= LINE:
        return [line]
    further = indent + _INDENT
    return [f"{indent}status = {symbol}(\n{further}" + f",\n{further}".join(args) + ");"]
