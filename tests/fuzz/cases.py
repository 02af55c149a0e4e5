"""Damaged files of every kind that crtexport reads, each with the command that is given it."""

from __future__ import annotations

import hashlib
import io
import json
import random
import struct
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import crtexport
from tests.fuzz.corpus import Seed, example
from tests.fuzz.mutate import change_tree, damaged_bytes, damaged_json, mutant, places
from tests.helpers import ROOT

BOARDS = ("host", "mps2_an386", "mps3_an547", "qemu_riscv32", "host_avx2", "qemu_x86")
STAGES = ("graph", "plan", "picture", "kernels", "c", "llvm")
NAMES = (
    "../outside", "/outside/of/it", "a/../../outside", "codegen/host/src", "codegen/host/src/x.c",
    "codegen/host/include/x.h", "metadata.json", "./metadata.json", "", ".", "..", "\n", "x" * 300,
    "codegen\\host\\x.c", "codegen/host/src/\u2028.c", "parameters/x.params",
)
KINDS = tuple(
    getattr(tarfile, kind) for kind in ("SYMTYPE", "LNKTYPE", "CHRTYPE", "FIFOTYPE", "DIRTYPE")
)


@dataclass(frozen=True)
class Case:
    """``files`` lie in the folder ``in``; ``{in}`` and ``{out}`` in ``arguments`` are that folder
    and the one that may be written to. ``linked``: in the latter lie links to somewhere else."""

    kind: str
    name: str
    files: dict[str, bytes]
    arguments: tuple[str, ...]
    linked: bool = False


@dataclass(frozen=True)
class Corpus:
    """Files that are sound. Boards are trees of YAML; ``models`` and ``packages`` are read as they
    are."""

    models: Sequence[Seed]
    boards: dict[str, Any]
    packages: Sequence[Seed]


def corpus(models: Sequence[Seed]) -> Corpus:
    """All boards, packages of the bundled network, and ``models``."""
    boards = {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "boards").glob("*.yaml"))
    }
    return Corpus(models, boards, [*_packages()])


def _packages() -> list[Seed]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "digits.json"
        seed = example()
        model.write_bytes(seed.content)
        for name, content in seed.beside.items():
            (model.parent / name).write_bytes(content)
        for board, emit in (("host", "c"), ("host", "llvm"), ("mps2_an386", "c")):
            path = crtexport.export(
                model, board=board, emit=emit, output=Path(folder) / "x.tar"
            ).path
            found.append(Seed(f"digits-{board}-{emit}", path.read_bytes()))
        both = crtexport.export(
            [model, model], board="qemu_cortex_m0", module_name=["a", "b"], emit="c",
            output=Path(folder) / "x.tar",
        )
        found.append(Seed("two-qemu_cortex_m0-c", both.path.read_bytes()))
    return found


def case(sound: Corpus, number: int) -> Case:
    """The damaged file of this number; the same for the same corpus."""
    rng = random.Random(number)  # noqa: S311  (no secret)
    makers: tuple[Callable[[Corpus, random.Random, int], Case], ...] = (
        _model, _model, _model, _sidecar, _board, _board, _package, _package,
    )
    return makers[number % len(makers)](sound, rng, number)


# ---- networks


def _model(sound: Corpus, rng: random.Random, number: int) -> Case:
    seed = mutant(sound.models, number)
    kind = "model.json" if seed.is_json else ".onnx" if seed.is_onnx else ".tflite"
    return Case(kind, seed.name, {"model": seed.content, **seed.beside}, _of_model(rng))


def _of_model(rng: random.Random) -> tuple[str, ...]:
    path, board = "{in}/model", rng.choice(BOARDS)
    match rng.randrange(10):
        case 0:
            return ("convert", path, "-o", "{out}/new.json")
        case 1:
            return ("inspect", path, "--stage", rng.choice(STAGES), "--board", board)
        case 2:
            return ("inspect", path)
        case 3:
            return ("export", path, "--board", board, "--emit", "llvm", "-o", "{out}/x.tar")
        case 4:
            return (
                "export", path, "--board", board, "--emit", "c", "-o", "{out}/x.tar",
                "--unpack", "{out}/folder", "--depfile", "{out}/x.d",
            )
        case _:
            return ("export", path, "--board", board, "--emit", "c", "-o", "{out}/x.tar")


def _sidecar(sound: Corpus, rng: random.Random, number: int) -> Case:
    """A .safetensors file whose header says something else, beside a sound model.json."""
    seeds = [seed for seed in sound.models if any(n.endswith(".safetensors") for n in seed.beside)]
    seed = seeds[rng.randrange(len(seeds))]
    name = next(n for n in sorted(seed.beside) if n.endswith(".safetensors"))
    content, count = seed.beside[name], rng.choice((1, 1, 1, 2, 4))
    (size,) = struct.unpack_from("<Q", content)
    if rng.random() < 0.7:
        header = damaged_json(rng, content[8 : 8 + size], count)
        stated = len(header) if rng.random() < 0.9 else rng.choice((0, 1, 1 << 27, 1 << 63, size))
        damaged = struct.pack("<Q", stated) + header + content[8 + size :]
    else:
        damaged = damaged_bytes(rng, Seed(name, content), [seed], count)
    if rng.random() < 0.1:
        damaged = damaged[: rng.randrange(len(damaged) + 1)]
    files = {"model": seed.content, **seed.beside, name: damaged}
    return Case("safetensors", seed.name, files, _of_model(rng))


# ---- boards


def _board(sound: Corpus, rng: random.Random, number: int) -> Case:
    name = rng.choice(sorted(sound.boards))
    tree = json.loads(json.dumps(sound.boards[name]))
    if rng.random() < 0.3:
        # Keys that other boards have.
        other = sound.boards[rng.choice(sorted(sound.boards))]
        key = rng.choice(sorted(other))
        tree[key] = json.loads(json.dumps(other[key]))
    if rng.random() < 0.5:
        _exchange(rng, tree, sound.boards)
    else:
        change_tree(rng, tree, rng.choice((1, 1, 1, 2, 3, 6)))
    if rng.random() < 0.7:
        content = json.dumps(tree).encode()  # YAML, too, and never beyond its writer
    else:
        text = yaml.safe_dump(sound.boards[name]).encode()
        content = damaged_bytes(rng, Seed(name, text), sound.models, rng.choice((1, 2, 4)))
    if rng.random() < 0.01:
        content = _bomb(rng)
    seed = example()
    path = "{in}/board.yaml"
    emit = rng.choice(("c", "c", "c", "llvm"))
    arguments = (
        ("boards", path),
        ("export", "{in}/model.json", "--board", path, "-o", "{out}/x.tar"),
        ("export", "{in}/model.json", "--board", path, "--emit", emit, "-o", "{out}/x.tar"),
        ("inspect", "{in}/model.json", "--stage", rng.choice(STAGES), "--board", path),
    )[rng.randrange(4)]
    return Case(
        "board", name, {"board.yaml": content, "model.json": seed.content, **seed.beside}, arguments
    )


def _exchange(rng: random.Random, tree: Any, boards: dict[str, Any]) -> None:
    """Gives keys values that they have in other boards, or numbers near theirs."""
    values: dict[str, list[Any]] = {}
    for board in boards.values():
        for parent, key in places(board):
            if isinstance(parent, dict):
                values.setdefault(key, []).append(parent[key])
    own = [(p, k) for p, k in places(tree) if isinstance(p, dict)]
    for parent, key in rng.sample(own, min(len(own), rng.choice((1, 1, 2, 4)))):
        if isinstance(parent[key], int) and rng.random() < 0.7:
            parent[key] = rng.choice((
                parent[key] + 1, parent[key] * 2, parent[key] // 2, parent[key] << 20, 1, 3, 4096
            ))
        else:
            parent[key] = json.loads(json.dumps(rng.choice(values.get(key) or [parent[key]])))


def _bomb(rng: random.Random) -> bytes:
    """Little text for something large or deep."""
    if rng.random() < 0.5:
        return b"name: " + b"[" * 5000
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    return "\n".join([*lines, "name: *a11"]).encode()


# ---- packages


def _package(sound: Corpus, rng: random.Random, number: int) -> Case:
    seed = sound.packages[rng.randrange(len(sound.packages))]
    if rng.random() < 0.25:
        content = damaged_bytes(rng, seed, sound.packages, rng.choice((1, 1, 2, 4)))
    else:
        content = _retarred(rng, seed.content, rng.choice((1, 1, 2, 3)))
    linked = rng.random() < 0.15
    arguments = (
        ("inspect", "{in}/package.tar"),
        ("inspect", "{in}/package.tar", "--json"),
        ("unpack", "{in}/package.tar", "{out}/folder"),
        ("unpack", "{in}/package.tar", "{out}/folder"),
        ("simulate", "{in}/package.tar"),
        ("run", "{in}/package.tar"),
        ("report", "{in}/package.tar", "-o", "{out}/x.html"),
    )[rng.randrange(7)]
    return Case("package", seed.name, {"package.tar": content}, arguments, linked)


def _retarred(rng: random.Random, content: bytes, count: int) -> bytes:
    """A package of which members are others; half of the time it states their new hashes."""
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        members = [
            (info, (tar.extractfile(info) or io.BytesIO()).read() if info.isfile() else b"")
            for info in tar.getmembers()
        ]
    for _ in range(count):
        _change_member(rng, members)
    written = io.BytesIO()
    kind = rng.choice((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))
    with tarfile.open(fileobj=written, mode="w", format=kind) as tar:
        for info, data in members:
            try:
                tar.addfile(info, io.BytesIO(data))
            except (ValueError, OverflowError, UnicodeError):
                continue  # what this format has no room for
    return written.getvalue()


def _change_member(rng: random.Random, members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    if not members:
        return
    described = [i for i, (info, _) in enumerate(members) if info.name.endswith(".json")]
    number = rng.choice(described) if described and rng.random() < 0.6 else (
        rng.randrange(len(members))
    )
    info, data = members[number]
    other = tarfile.TarInfo(info.name)
    other.size, other.type, other.mode = info.size, info.type, info.mode
    match rng.randrange(8):
        case 0 | 1 | 2 | 3 if info.isfile():
            _rewrite(rng, members, number)
        case 4:
            other.name = rng.choice(NAMES)
            members[number] = other, data
        case 5:
            other.type, other.size = rng.choice(KINDS), 0
            other.linkname = rng.choice(NAMES)
            members[number] = other, b""
        case 6:
            members.pop(number)
        case _:
            members.insert(rng.randrange(len(members)), (other, data))


def _rewrite(
    rng: random.Random, members: list[tuple[tarfile.TarInfo, bytes]], number: int
) -> None:
    info, data = members[number]
    count = rng.choice((1, 1, 2, 4))
    try:
        changed = damaged_json(rng, data, count)
    except (ValueError, RecursionError):  # no JSON, or so deep on purpose
        whole = Seed(info.name, data or b"\0")
        changed = damaged_bytes(rng, whole, [whole], count)
    if rng.random() < 0.5:
        before, after = (hashlib.sha256(part).hexdigest().encode() for part in (data, changed))
        for at, (other, content) in enumerate(members):
            if other.name.endswith("metadata.json"):
                replaced = content.replace(before, after)
                other.size = len(replaced)
                members[at] = other, replaced
    new = tarfile.TarInfo(info.name)
    new.size, new.mode = len(changed), info.mode
    members[number] = new, changed
