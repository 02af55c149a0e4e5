"""Runs the code in a package on this computer."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from crtexport.devices import simulated
from crtexport.mlf import layout
from crtexport.mlf.arrays import Array, key_of
from crtexport.mlf.libraries import locate
from crtexport.mlf.metadata import ModuleSection
from crtexport.mlf.reader import Package
from crtexport.simulation.library import LoadedCode, build_shared, load_objects
from crtexport.simulation.simulation import Simulation
from crtexport.support.errors import CrtExportError
from crtexport.support.this_processor import check_processor


def simulate_package(
    package: Package, samples: Sequence[Mapping[str, Array]], device_code: Sequence[Path] = ()
) -> list[dict[str, Array]]:
    """Returns the outputs for each sample, run one after the other from the initial state; names of
    arrays are those of :func:`crtexport.mlf.arrays.key_of`.

    C sources of any board are compiled with the host's compiler; objects are loaded unmodified and
    must be for this computer. ``device_code``: C sources with device hooks. Raises
    CrtExportError for packages that can't be run here and for inputs that don't fit,
    ToolMissingError for a missing compiler or llvmlite, RunFailedError when the model fails.
    """
    return simulate_models(package, {package.module: samples}, device_code)[package.module]


def simulate_models(
    package: Package, samples: Mapping[str, Sequence[Mapping[str, Array]]],
    device_code: Sequence[Path] = (),
) -> dict[str, list[dict[str, Array]]]:
    """Returns the outputs of several models of a package, by name; they run alternately, sample by
    sample. Arguments and errors are as of :func:`simulate_package`."""
    models = [package.select(name) for name in samples]
    library = _library(package, device_code)
    simulations = [_simulation(model, library) for model in models]
    results: dict[str, list[dict[str, Array]]] = {name: [] for name in samples}
    for number in range(max(map(len, samples.values()), default=0)):
        for model, simulation in zip(models, simulations, strict=True):
            if number < len(samples[model.module]):
                given = samples[model.module][number]
                results[model.module].append(_run(model, simulation, given))
    return results


def _run(
    package: Package, simulation: Simulation, sample: Mapping[str, Array]
) -> dict[str, Array]:
    keys = [key_of(tensor) for tensor in package.inputs]
    missing = [key for key in keys if key not in sample]
    if missing:
        raise CrtExportError("there is no array for this input", location=missing[0])
    outputs = simulation.run([sample[key] for key in keys])
    return {key_of(tensor): array for tensor, array in zip(package.outputs, outputs, strict=True)}


def load_package(package: Package) -> Simulation:
    """Returns the one model in ``package``, ready to run. Raises as :func:`simulate_package`."""
    return _simulation(package, _library(package, ()))


def _simulation(package: Package, library: LoadedCode) -> Simulation:
    section = package.described
    return Simulation(
        module=package.module,
        inputs=tuple(map(package.interface, package.inputs)),
        outputs=tuple(map(package.interface, package.outputs)),
        library=library,
        workspace_size=section.workspace.bytes,
        workspace_align=section.workspace.align,
        workspace_caller=section.workspace.owner == "caller",
        state_size=section.state.bytes,
        spilled=tuple((pool.memory, pool.bytes) for pool in section.workspace.spilled),
        io_in_workspace=section.io == "workspace",
        devices=len(section.devices),
        image_buffer=section.caller_buffer,
        feed=None if section.feed is None else (
            section.feed.rows, section.feed.row_bytes, section.feed.hop
        ),
    )


def _linked(
    package: Package, sections: Sequence[ModuleSection], device_code: Sequence[Path]
) -> LoadedCode:
    """Returns the package with its external functions, linked by the host's compiler; a simulated
    device stands in for each kind of device."""
    texts = simulated.sources(
        [context.hooks[0] for section in sections for context in section.devices], device_code
    )
    with tempfile.TemporaryDirectory(prefix="crtexport-") as name:
        folder = Path(name)
        package.extract(folder)
        hooks = folder / "hooks"
        hooks.mkdir()
        for file, content in simulated.headers().items():
            (hooks / file).write_bytes(content)
        libraries = tuple(dict.fromkeys(lib for section in sections for lib in section.libraries))
        for file, text in texts.items():
            (hooks / file).write_text(text, encoding="utf-8")
        return build_shared(
            [
                *(folder / layout.source(source) for source in package.sources),
                *(hooks / file for file in texts),
            ],
            [folder / layout.INCLUDE_DIR, folder / layout.RUNTIME_INCLUDE_DIR, hooks],
            ["-Wl,-z,defs"],
            objects=[folder / layout.library(name) for name in package.objects],
            libraries=locate(libraries, archives=False),
        )


def _library(package: Package, device_code: Sequence[Path]) -> LoadedCode:
    sources, objects = package.sources, package.objects
    if not sources and not objects:
        raise CrtExportError(
            "the package has neither C sources nor objects", location=str(package.path)
        )
    sections = list(package.section.modules.values()) if package.section else []
    if objects and package.section:
        abi = package.section.abi
        check_processor(abi.cpu, abi.features, str(package.path))
    try:
        if device_code or any(section.externals for section in sections):
            return _linked(package, sections, device_code)
        if not sources:
            return load_objects(objects.values())
        with tempfile.TemporaryDirectory(prefix="crtexport-") as name:
            folder = Path(name)
            package.extract(folder, besides=layout.OBJECT_DIR)
            return build_shared(
                [folder / layout.source(source) for source in sources],
                [folder / layout.INCLUDE_DIR, folder / layout.RUNTIME_INCLUDE_DIR],
                constants=objects.values(),
            )
    except CrtExportError as error:
        raise error.within(str(package.path)) from error
