"""The demands that readers of the Model Library Format make, without a line of crtexport.

Each check follows one program that reads packages: TVM's loader for micro targets, its project
templates for the host, Zephyr and Arduino, its loader of parameters. ``complaints(path)`` returns
what they would stumble over; a good package gives an empty list.
"""

from __future__ import annotations

import json
import re
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

MODULE_KEYS = {
    "model_name": str, "export_datetime": str, "memory": dict, "target": list,
    "executors": list, "style": str, "external_dependencies": list,
}
MAIN_KEYS = {
    "device": int, "workspace_size_bytes": int, "constants_size_bytes": int,
    "io_size_bytes": int, "inputs": dict, "outputs": dict,
}
PARAMETERS_MAGIC = 0xF7E58D4F05049CB7


class Files:
    """The members of the tar as the readers see them: by literal name."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self.tar = tar
        self.members = tar.getmembers()

    def names(self, folder: str) -> list[str]:
        """Names of the files directly in ``folder``."""
        prefix = f"./{folder}/"
        return [
            m.name.removeprefix(prefix) for m in self.members
            if m.isfile() and m.name.startswith(prefix)
        ]

    def read(self, name: str) -> bytes:
        stream = self.tar.extractfile(f"./{name}")
        if stream is None:
            raise KeyError(name)
        return stream.read()


def complaints(path: Path) -> list[str]:
    """Returns what any of the readers would refuse, as sentences."""
    try:
        # Not tarfile.open(): this constructor doesn't decompress, and the templates use it.
        tar = tarfile.TarFile(path)
    except tarfile.TarError as error:
        return [f"TarFile doesn't open it: {error}"]
    with tar:
        files = Files(tar)
        found = container(files)
        try:
            metadata = json.loads(files.read("metadata.json"))
        except KeyError:
            return [*found, "there is no literal ./metadata.json"]
        for check in CHECKS:
            found += check(files, metadata)
        return found


def container(files: Files) -> list[str]:
    found = []
    if files.members[0].name != "." or not files.members[0].isdir():
        found.append("the first member isn't the root folder")
    for member in files.members:
        parts = PurePosixPath(member.name).parts
        if member.name.startswith("/") or ".." in parts:
            found.append(f"{member.name} leads out of the folder")
        if not (member.isfile() or member.isdir()):
            found.append(f"{member.name} is neither file nor folder")
    names = [member.name for member in files.members]
    if len(set(names)) != len(names):
        found.append("a member comes twice")
    for folder in ("codegen/host/src", "parameters", "src"):
        if f"./{folder}" not in names:
            found.append(f"the folder {folder} is missing")
    # Arduino's template copies all sources to one folder.
    flat = [PurePosixPath(n).name.lower() for n in names if n.startswith("./codegen/host/")]
    if len(set(flat)) != len(flat):
        found.append("two files of generated code share a name")
    stems = [PurePosixPath(n).stem for n in flat if n.endswith((".c", ".cc", ".cpp", ".o"))]
    if not stems:
        found.append("there is no generated code")
    if len(set(stems)) != len(stems):
        found.append("there is a source and an object of one stem")
    return found


def metadata_keys(files: Files, metadata: dict[str, Any]) -> list[str]:
    found = []
    if metadata.get("version") != 7:
        found.append(f"version is {metadata.get('version')}")
    for name, module in metadata["modules"].items():
        found += _typed(module, MODULE_KEYS, name)
        if module.get("model_name") != name:
            found.append("model_name differs from the key")
        if not re.fullmatch(r"[a-z0-9_]+", name):
            found.append(f"the module {name} can't be mangled the same way by all readers")
        if not re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", module["export_datetime"]):
            found.append("export_datetime has another form")
        if set(module["memory"]) != {"functions"}:
            found.append("memory of an AOT module has other keys than functions")
        functions = module["memory"]["functions"]
        if set(functions) != {"main", "operator_functions"}:
            found.append("functions has other keys")
        for main in functions["main"]:
            found += _typed(main, MAIN_KEYS, f"{name}.main")
            for tensor in (*main["inputs"].values(), *main["outputs"].values()):
                found += _typed(tensor, {"size": int, "dtype": str}, f"{name}.tensor")
        for function in functions["operator_functions"]:
            found += _typed(function, {"function_name": str, "workspace": list}, "operator")
    return found


def _typed(data: dict[str, Any], keys: dict[str, type], where: str) -> list[str]:
    found = [f"{where} has the key {key} too" for key in data.keys() - keys.keys()]
    for key, kind in keys.items():
        if not isinstance(data.get(key), kind):
            found.append(f"{where}.{key} is {data.get(key)!r}, not {kind.__name__}")
    return found


def micro_loader(files: Files, metadata: dict[str, Any]) -> list[str]:
    """``tvmc run --device micro``: one module, one executor, its parameters."""
    if len(metadata["modules"]) != 1:
        return ["there isn't exactly one module"]
    ((name, module),) = metadata["modules"].items()
    found = []
    if len(module["executors"]) != 1 or module["executors"][0] not in ("aot", "graph"):
        found.append(f"executors are {module['executors']}")
    try:
        content = files.read(f"parameters/{name}.params")
    except KeyError:
        return [*found, "the parameters are missing"]
    if len(content) < 32 or struct.unpack_from("<QQ", content) != (PARAMETERS_MAGIC, 0):
        return [*found, "the parameters have a wrong header"]
    names, arrays = struct.unpack_from("<QQ", content, 16)
    if names or arrays or len(content) != 32:
        found.append("the parameters aren't the empty dictionary of 32 bytes")
    return found


def arduino(files: Files, metadata: dict[str, Any]) -> list[str]:
    """Arduino's example project has an arena for the workspaces of full models, and takes no file
    but sources."""
    found = []
    for name, module in metadata["modules"].items():
        if module["style"] != "full-model":
            found.append(f"style is {module['style']}")
        arena = module["memory"]["functions"]["main"][0]["workspace_size_bytes"]
        if arena and not _workspace_of_the_caller(files, name):
            found.append(f"an arena of {arena} bytes stands beside the workspace in {name}'s code")
    for source in files.names("codegen/host/src"):
        text = files.read(f"codegen/host/src/{source}").decode("utf-8", "replace")
        if re.search(r'#include\s+["<]tvmgen_', text):
            found.append(f"{source} needs a header that isn't copied")
    return found


def _workspace_of_the_caller(files: Files, name: str) -> bool:
    """Returns whether users of the module hand in its workspace, by the header."""
    header = files.read(f"codegen/host/include/tvmgen_{name}.h").decode()
    return re.search(r"^  void \*workspace;", header, re.MULTILINE) is not None


def zephyr(files: Files, metadata: dict[str, Any]) -> list[str]:
    """Zephyr's template greps the sources as text, for headers of CMSIS-NN among others, and makes
    a library of sources and objects whose language CMake has to find out."""
    found = []
    if not files.names("codegen/host/src"):
        found.append("no source tells CMake the language of the library")
    for name in files.names("codegen/host/src"):
        text = files.read(f"codegen/host/src/{name}").decode("utf-8", "replace")
        if "arm_nnfunctions.h" in text:
            found.append(f"{name} would make the template ask for cmsis_path")
    return found


def header_and_sums(files: Files, metadata: dict[str, Any]) -> list[str]:
    """The C interface's header: its macros say what the metadata says."""
    found = []
    for name, module in metadata["modules"].items():
        try:
            header = files.read(f"codegen/host/include/tvmgen_{name}.h").decode()
        except KeyError:
            found.append("the header of the C interface is missing")
            continue
        main = module["memory"]["functions"]["main"][0]
        tensors = [*main["inputs"].values(), *main["outputs"].values()]
        if main["io_size_bytes"] != sum(tensor["size"] for tensor in tensors):
            found.append("io_size_bytes isn't the sum of the tensors")
        if _workspace_of_the_caller(files, name):
            pattern = rf"TVMGEN_{name.upper()}_WORKSPACE_SIZE\s+\(?(\d+)"
            if re.findall(pattern, header)[:1] != [str(main["workspace_size_bytes"])]:
                found.append("the header's workspace size differs from the metadata's")
        if f"./src/{name}.relay" not in {m.name for m in files.members}:
            found.append("the graph's text is missing")
    return found


CHECKS: tuple[Callable[[Files, dict[str, Any]], list[str]], ...] = (
    metadata_keys, micro_loader, arduino, zephyr, header_and_sums,
)
