"""Device programs in a package: their metadata, and files with the programs for other tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crtexport.artifact.byte_sources import Blob, Streamed
from crtexport.artifact.contexts import launched
from crtexport.artifact.model import Artifact, DeviceImage
from crtexport.artifact.symbols import Namer, c_identifier
from crtexport.devices.offload import (
    Container,
    OffloadEntry,
    compressed_bundle,
    offload_binaries,
)
from crtexport.mlf import layout, metadata
from crtexport.support.errors import CrtExportError
from crtexport.support.files import text


def described(
    artifacts: Sequence[Artifact], triple: str
) -> tuple[metadata.ImageEntry, ...]:
    """Returns the metadata of the device programs of all models, in the order of the tables in
    their code. ``triple`` is the processor's."""
    return tuple(
        metadata.ImageEntry(
            module=artifact.module, kind=text(device.kind), id=device.id,
            program=text(device.program), functions=_functions(artifact, image),
            symbol=image.constant.symbol, offset=image.offset,
            compression=image.header.method.name.lower(),
            stored_size=image.header.stored_size, original_size=image.header.original_size,
            crc32c=f"{image.header.original_crc:08x}", align=image.header.align, target=target,
        )
        for artifact, image, target in _each(artifacts, triple)
        for device in (artifact.devices[image.device],)
    )


def containers(
    artifacts: Sequence[Artifact], triple: str, *, bundled: bool
) -> dict[str, Blob]:
    """Returns files with the original device programs, by path in the package: LLVM's container
    and, if ``bundled``, a compressed bundle for each program. Raises CrtExportError if there is no
    program to bundle."""
    each = list(_each(artifacts, triple))
    if not each:
        if bundled:
            raise CrtExportError("there is no device program that could be bundled")
        return {}
    entries = [
        OffloadEntry(
            image.source, text(device.kind), f"{text(device.kind)}-{device.id}",
            {
                "device": text(device.kind), "id": str(device.id),
                "program": text(device.program), "module": artifact.module,
                "functions": " ".join(_functions(artifact, image)),
            },
        )
        for artifact, image, _ in each for device in (artifact.devices[image.device],)
    ]
    files = {layout.OFFLOAD: _blob(offload_binaries(entries))}
    if bundled:
        # The bundler tells targets apart by nothing but what LLVM knows of their triples.
        files |= {
            layout.bundle(number): _blob(compressed_bundle([(target, image.source)]))
            for number, (_, image, target) in enumerate(each)
        }
    return files


def _each(
    artifacts: Sequence[Artifact], triple: str
) -> Iterator[tuple[Artifact, DeviceImage, str]]:
    """Yields every program and its name in the bundle: a kind and a triple that the bundler knows,
    those of the processor, and a name for model, device and program."""
    namer = Namer()
    parts = triple.split("-")
    if len(parts) == 3:
        parts = [parts[0], "unknown", *(("none", parts[2]) if parts[1] == "none" else parts[1:])]
    for artifact in artifacts:
        for image in artifact.images:
            device = artifact.devices[image.device]
            words = (artifact.module, device.kind, str(device.id), device.program)
            yield artifact, image, f"openmp-{'-'.join(parts)}-" + namer.name(
                c_identifier(" ".join(words))
            )


def _functions(artifact: Artifact, image: DeviceImage) -> tuple[str, ...]:
    return tuple(text(f.entry or "") for f in launched(artifact) if f.device == image.device)


def _blob(container: Container) -> Blob:
    return Streamed(b"", container.size, container.chunks)
