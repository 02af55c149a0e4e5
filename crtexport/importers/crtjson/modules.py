"""External modules in model.json: their files, functions and the devices that these run on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from crtexport.importers.crtjson.constants import Sidecars
from crtexport.importers.crtjson.document import (
    DeviceModel,
    Document,
    FunctionModel,
    ModuleModel,
    ProgramModel,
)
from crtexport.ir.modules import (
    ConstantVariable,
    Device,
    DeviceProgram,
    ExternalModule,
    ModuleFunction,
)
from crtexport.support.errors import CrtExportError

Find = Callable[[str], ConstantVariable]


def read_modules(
    document: Document, sidecars: Sidecars, find: Find
) -> tuple[ExternalModule, ...]:
    """Returns the modules of ``document``; ``find`` returns its constants. Raises CrtExportError,
    located by key, for missing files and keys that don't fit the kind."""
    return tuple(
        _module(module, f"modules[{number}]", sidecars, find)
        for number, module in enumerate(document.modules)
    )


def _module(module: ModuleModel, where: str, sidecars: Sidecars, find: Find) -> ExternalModule:
    image = module.kind == "device-image"
    for key in ("files", "functions", "programs"):
        wanted = (key == "programs") is image and (key, module.kind) != ("files", "ethos-u")
        if bool(getattr(module, key)) != wanted:
            raise CrtExportError(
                f"a module of kind {module.kind} has {key if wanted else f'no {key}'}",
                location=f"{where}.{key}",
            )
    if image:
        programs = tuple(
            DeviceProgram(
                _device(program.device),
                _file(sidecars, program.file, f"{where}.programs[{i}].file"),
                program.compression, program.align,
            )
            for i, program in enumerate(module.programs)
        )
        entries = tuple(entry for program in module.programs for entry in _entries(program))
        return ExternalModule(
            module.name, module.kind, tuple(p.file for p in programs), entries,
            programs=programs,
        )
    files = tuple(
        _file(sidecars, name, f"{where}.files[{i}]") for i, name in enumerate(module.files)
    )
    functions = tuple(
        _function(f, f"{where}.functions[{i}]", find) for i, f in enumerate(module.functions)
    )
    return ExternalModule(module.name, module.kind, files, functions)


def _file(sidecars: Sidecars, name: str, where: str) -> Path:
    try:
        return sidecars.file(name)
    except CrtExportError as error:
        raise error.within(where) from error.__cause__


def _device(model: DeviceModel) -> Device:
    return Device(model.kind, model.id, model.program)


def _entries(program: ProgramModel) -> tuple[ModuleFunction, ...]:
    device = _device(program.device)
    return tuple(
        ModuleFunction(entry.name, device, entry=entry.entry or entry.name)
        for entry in program.functions
    )


def _function(function: FunctionModel, where: str, find: Find) -> ModuleFunction:
    device = None if function.device is None else _device(function.device)
    variables = []
    for i, name in enumerate(function.const_vars):
        try:
            variables.append(find(name))
        except CrtExportError as error:
            raise CrtExportError(
                error.problem, location=f"{where}.const_vars[{i}]", hint=error.hint
            ) from error
    return ModuleFunction(
        function.name, device, tuple(variables), signature=function.signature
    )
