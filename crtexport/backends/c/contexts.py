"""Prints calls of external functions, and the device hooks around them."""

from __future__ import annotations

from collections.abc import Sequence

from crtexport.artifact import abi
from crtexport.artifact.contexts import (
    DECODER,
    Verb,
    all_hooks,
    context_fields,
    hook,
    image_of,
    images_symbol,
    launched,
    launched_symbol,
)
from crtexport.artifact.model import Artifact, ExternalFunction
from crtexport.backends.c.literals import LINE, c_string

_INDENT = "    "
_PARAMETERS: dict[Verb, str] = {
    "Load": "void *context, const struct crt_device_image *image, const void *program",
    "Launch": "void *context, const struct crt_device_function *function, "
    "const void *const *inputs, void *const *outputs",
}


class Contexts:
    """The devices of a model in its run function."""

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._devices = artifact.devices
        self._fields = context_fields(artifact.devices)
        self._rows = {f.symbol: row for row, f in enumerate(launched(artifact))}

    def prototypes(self, externals: Sequence[ExternalFunction]) -> list[str]:
        """Returns the declarations of hooks and external functions, each once."""
        hooks = [
            _declaration(symbol, _PARAMETERS.get(verb, "void *context").split(", "))
            for symbol, verb in all_hooks(self._artifact).items()
        ]
        functions = (f for f in externals if f.entry is None)
        return [*hooks, *map(_prototype, functions)]

    def activate(self) -> list[str]:
        """Returns the statements at the start of ``run``."""
        lines: list[str] = []
        for number in range(len(self._devices)):
            lines += [
                f"{_INDENT}status = {self._hook(number, 'Activate')};",
                *self._leave(_INDENT, number),
            ]
        return lines

    def call(self, function: ExternalFunction, args: Sequence[str], indent: str) -> list[str]:
        """Returns the statements that call ``function``, with its device open and its program
        loaded."""
        device = function.device
        active = len(self._devices)
        if device is None:
            given = ["NULL", *args] if function.commands else args
            return [*_assigned(function.symbol, given, indent), *self._leave(indent, active)]
        lines = [
            f"{indent}status = {self._hook(device, 'Open')};", *self._leave(indent, active),
        ]
        inner = indent
        if image_of(self._artifact, device) is not None:
            lines += self._load(device, indent)
            lines.append(f"{indent}if (status == 0) {{")
            inner += _INDENT
        if function.entry is not None:
            lines += self._launch(function, device, args, inner)
        else:
            lines += _assigned(function.symbol, self._with_context(function, args, device), inner)
        return [
            *lines,
            *([f"{indent}}}"] if inner != indent else []),
            f"{indent}status = crt_first({self._closing(device, 'Close')});",
            *self._leave(indent, active),
        ]

    def _load(self, device: int, indent: str) -> list[str]:
        """Returns statements that make the program available and pass it to the open device."""
        number = image_of(self._artifact, device)
        row = f"{images_symbol(self._artifact)}[{number}]"
        further = indent + _INDENT
        load = f"{hook(self._devices[device], 'Load')}"
        return [
            f"{indent}status = {DECODER}(",
            f"{further}{row}.image,",
            f"{further}CRT_IMAGE_HEADER_SIZE + (size_t){row}.stored_size,",
            f"{further}{', '.join(self._buffer())}, &program);",
            f"{indent}if (status == 0) {{",
            *_assigned(load, [self._context(device), f"&{row}", "program"], further),
            f"{indent}}}",
        ]

    def _buffer(self) -> tuple[str, str]:
        """Returns the buffer that programs are inflated into, and its size."""
        artifact = self._artifact
        if not artifact.inflated_size:
            return "NULL", "0"
        place = (
            f"workspace_pools->{abi.IMAGE_POOL}" if abi.takes_buffer(artifact)
            else f"{artifact.prefix}_{abi.IMAGE_POOL}"
        )
        return place, f"{artifact.prefix.upper()}_{abi.IMAGE_POOL.upper()}_SIZE"

    def _launch(
        self, function: ExternalFunction, device: int, args: Sequence[str], indent: str
    ) -> list[str]:
        """Returns statements that run a function of the device's program."""
        inputs, made = args[: function.inputs], args[function.inputs :]
        further = indent + _INDENT
        row = f"&{launched_symbol(self._artifact)}[{self._rows[function.symbol]}]"
        return [
            f"{indent}{{",
            *_array("const void *const given[]", inputs, further),
            *_array("void *const made[]", made, further),
            "",
            *_assigned(
                hook(self._devices[device], "Launch"),
                [self._context(device), row, "given" if inputs else "NULL", "made"], further,
            ),
            f"{indent}}}",
        ]

    def tables(self) -> list[str]:
        """Returns the definitions of the tables of programs and their functions."""
        artifact = self._artifact
        rows = []
        for image in artifact.images:
            device, header = self._devices[image.device], image.header
            rows.append(
                f"{_INDENT}{{\n{_INDENT}{_INDENT}{c_string(device.kind)}, "
                f"{c_string(device.program)},\n{_INDENT}{_INDENT}"
                f"&{image.constant.symbol}[{image.offset}],\n{_INDENT}{_INDENT}"
                f"{device.id}u, {header.method.value}u, {header.stored_size}u, "
                f"{header.original_size}u, 0x{header.original_crc:08X}u, {header.align}u,\n"
                f"{_INDENT}}},"
            )
        tables = [_table("crt_device_image", images_symbol(artifact), rows)] if rows else []
        functions = [
            f"{_INDENT}{{ {c_string(f.entry or '')}, "
            f"&{images_symbol(artifact)}[{image_of(artifact, f.device or 0)}], "
            f"{f.inputs}u, {f.outputs}u }},"
            for f in launched(artifact)
        ]
        if functions:
            tables.append(_table("crt_device_function", launched_symbol(artifact), functions))
        return tables

    def deactivate(self) -> list[str]:
        """Returns the statements at the end of ``run``, with the labels for failures."""
        lines: list[str] = []
        for number in reversed(range(len(self._devices))):
            # The innermost label is for failing functions, the others for failing activations.
            lines += [
                f"deactivate_{number + 1}:",
                f"{_INDENT}status = crt_first({self._closing(number, 'Deactivate')});",
            ]
        return lines

    def _leave(self, indent: str, active: int) -> list[str]:
        """Returns statements that leave ``run`` with a nonzero status, while ``active`` devices are
        active."""
        how = f"goto deactivate_{active};" if active else "return status;"
        return [f"{indent}if (status != 0) {{", f"{indent}{_INDENT}{how}", f"{indent}}}"]

    def _with_context(
        self, function: ExternalFunction, args: Sequence[str], device: int
    ) -> list[str]:
        context = self._context(device)
        return [context, *args] if function.commands else [*args, context]

    def _context(self, number: int) -> str:
        return f"devices->{self._fields[number]}"

    def _hook(self, number: int, verb: Verb) -> str:
        return f"{hook(self._devices[number], verb)}({self._context(number)})"

    def _closing(self, number: int, verb: Verb) -> str:
        return f"status, {self._hook(number, verb)}"


_COMMANDS = (
    "void *context", "void *commands", "size_t commands_size", "uint64_t *addresses",
    "size_t *sizes", "int count",
)


def _prototype(function: ExternalFunction) -> str:
    if function.commands:
        return _declaration(function.symbol, _COMMANDS)
    parameters = ["const void *"] * function.inputs + ["void *"] * function.outputs
    parameters += ["const void *"] * function.constants
    if function.device is not None:
        parameters.append("void *context")
    return _declaration(function.symbol, parameters)


def _declaration(symbol: str, parameters: Sequence[str]) -> str:
    line = f"int32_t {symbol}({', '.join(parameters) or 'void'});"
    if len(line) <= LINE:
        return line
    return f"int32_t {symbol}(\n{_INDENT}" + f",\n{_INDENT}".join(parameters) + ");"


def _table(struct: str, symbol: str, rows: Sequence[str]) -> str:
    return "\n".join([f"const struct {struct} {symbol}[{len(rows)}] = {{", *rows, "};"])


def _array(declared: str, values: Sequence[str], indent: str) -> list[str]:
    """Returns an array of pointers; nothing for no values, since C has no empty arrays."""
    if not values:
        return []
    further = indent + _INDENT
    return [f"{indent}{declared} = {{", *(f"{further}{value}," for value in values), f"{indent}}};"]


def _assigned(symbol: str, args: Sequence[str], indent: str) -> list[str]:
    line = f"{indent}status = {symbol}({', '.join(args)});"
    if len(line) <= LINE:
        return [line]
    further = indent + _INDENT
    return [f"{indent}status = {symbol}(\n{further}" + f",\n{further}".join(args) + ");"]
