"""The memory of models in a built image by layer, and of the rest of the image."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection
from msgspec import Struct, field

from crtexport.firmware.zephyr.build import IMAGE
from crtexport.support.errors import CrtExportError

NATIVE_IMAGE = "zephyr/zephyr.exe"
REST = "rest"

_OF_A_MODEL = re.compile(r"tvmgen_([a-z0-9_]+)_run")
_CALLERS = {"main", "run", "run_packed"}


class ImagePart(Struct):
    """The bytes of one function with the constants that only it reads, or of one table."""

    code: int = 0
    constants: int = 0
    ram: int = 0


class BuildReport(Struct):
    """``models[model][layer]``, and the bytes of the whole image.

    ``flash`` counts loaded bytes, ``ram`` writable ones; data with an initial value is in both.
    """

    flash: int = 0
    ram: int = 0
    models: dict[str, dict[str, ImagePart]] = field(default_factory=dict)

    def flash_of(self, model: str) -> int:
        return sum(part.code + part.constants for part in self.models[model].values())

    def ram_of(self, model: str) -> int:
        return sum(part.ram for part in self.models[model].values())


class _Symbol(Struct, frozen=True):
    name: str
    size: int
    kind: str  # code, constants or ram


def find_image(folder: Path) -> Path:
    """Returns the linked image in ``folder``. Raises CrtExportError before the first build."""
    # In native builds, zephyr.elf isn't the program but a part that is linked into it.
    for name in (NATIVE_IMAGE, IMAGE):
        if (folder / name).is_file():
            return folder / name
    raise CrtExportError(
        "nothing is built here yet", location=str(folder), hint=f"west build -d {folder}"
    )


def read_report(folder: Path) -> BuildReport:
    """Returns the report of the image built in ``folder``. Raises CrtExportError where there is
    none."""
    image = find_image(folder)
    report = BuildReport()
    try:
        with image.open("rb") as stream:
            elf = ELFFile(stream)
            for section in elf.iter_sections():
                if section["sh_flags"] & SH_FLAGS.SHF_ALLOC:
                    loaded = section["sh_type"] != "SHT_NOBITS"
                    report.flash += int(section["sh_size"]) if loaded else 0
                    writable = section["sh_flags"] & SH_FLAGS.SHF_WRITE
                    report.ram += int(section["sh_size"]) if writable else 0
            symbols = list(_symbols(elf))
        readers = _readers(folder)
    except (OSError, ELFError) as error:
        raise CrtExportError(f"the image can't be read: {error}", location=str(image)) from error
    names = {m[1] for s in symbols if s.kind == "code" and (m := _OF_A_MODEL.fullmatch(s.name))}
    for symbol in symbols:
        model = _model(symbol.name, names)
        if model is not None:
            _count(report.models.setdefault(model, {}), model, symbol, readers)
    return report


def _count(
    parts: dict[str, ImagePart], model: str, symbol: _Symbol, readers: dict[str, set[str]]
) -> None:
    layer = _layer(symbol.name, model)
    if symbol.kind == "constants":
        users = {_layer(name, model) for name in readers.get(symbol.name, ())}
        # A function that only passes a table's address to another doesn't read it.
        if len(users) == 1 and not users & _CALLERS:
            layer = users.pop()
    part = parts.setdefault(layer, ImagePart())
    setattr(part, symbol.kind, getattr(part, symbol.kind) + symbol.size)


def _model(name: str, models: Iterable[str]) -> str | None:
    """Returns the model that symbol ``name`` belongs to: the longest of those whose prefix it has.
    """
    fitting = [m for m in models if re.match(rf"tvmgen_{m}[_.]", name)]
    return max(fitting, key=len, default=None)


def _layer(name: str, model: str) -> str:
    return name[len(f"tvmgen_{model}") + 1 :]


def _symbols(elf: ELFFile) -> Iterator[_Symbol]:
    seen: set[tuple[int, int]] = set()
    for table in elf.iter_sections():
        if not isinstance(table, SymbolTableSection):
            continue
        for symbol in table.iter_symbols():
            index, size = symbol["st_shndx"], int(symbol["st_size"])
            kind = symbol["st_info"]["type"]
            if not isinstance(index, int) or not size or kind not in ("STT_FUNC", "STT_OBJECT"):
                continue
            place = (int(symbol["st_value"]), size)
            if place in seen:
                continue
            seen.add(place)
            flags = elf.get_section(index)["sh_flags"]
            what = "ram" if flags & SH_FLAGS.SHF_WRITE else "constants"
            yield _Symbol(str(symbol.name), size, "code" if kind == "STT_FUNC" else what)


def _readers(folder: Path) -> dict[str, set[str]]:
    """Returns the functions that read each constant, by the relocations in the models' own objects.
    """
    objects = [
        *folder.glob("crtexport/*/lib/*.o"), *folder.rglob("crtexport_*.dir/**/*.obj"),
    ]
    readers: dict[str, set[str]] = defaultdict(set)
    for path in sorted(set(objects)):
        with path.open("rb") as stream:
            elf = ELFFile(stream)
            for section in elf.iter_sections():
                if not isinstance(section, RelocationSection):
                    continue
                function = elf.get_section(section["sh_info"]).name
                if not function.startswith(".text."):
                    continue
                table = elf.get_section(section["sh_link"])
                if not isinstance(table, SymbolTableSection):
                    continue
                for relocation in section.iter_relocations():
                    target = table.get_symbol(relocation["r_info_sym"])
                    name = str(target.name)
                    if target["st_info"]["type"] == "STT_SECTION":
                        name = elf.get_section(target["st_shndx"]).name
                    name = re.sub(r"^\.rodata\.", "", name)
                    readers[name].add(function.removeprefix(".text."))
    return readers
