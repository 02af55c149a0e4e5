"""The house rules, read from the source: who may import whom, sizes, and complete operators."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
from msgspec import NODEFAULT
from msgspec.structs import fields

import crtexport
from crtexport.firmware.architectures import ARCHITECTURES
from crtexport.importers import load
from crtexport.importers.crtjson.document import NODE_MODELS
from crtexport.ir import ops
from crtexport.ir.infer import infer
from crtexport.ir.ops import INTERNAL, Cascade, Control, Foreign, Op
from crtexport.lowering.operator_table import ELSEWHERE, module_of, registered
from crtexport.schedules.variants import INSTRUCTION_SETS
from crtexport.support.errors import CrtExportError
from tests.control.networks import NETWORKS
from tests.differential.cases import CASES, PAIRS, SeededDraw
from tests.differential.numpy_cases import NUMPY_CASES

PACKAGE = Path(crtexport.__file__).resolve().parent
TESTS = Path(__file__).resolve().parent
OPERATORS = tuple(kind for kind in ops.OPERATORS if kind not in INTERNAL)

# Used by all parts; they use none but each other.
FOUNDATION = {"support", "version"}

# In the order of the way from a model to a package: a part imports from lines above its own.
LAYERS: tuple[set[str], ...] = (
    {"ir"},
    {"importers", "passes"},
    {"kir"},
    {"lowering"},
    {"schedules"},
    {"plan"},
    {"devices"},
    {"artifact"},
    {"backends"},
    {"accelerators"},
    {"mlf"},
    {"firmware", "simulation"},
    {"pipeline", "integrations"},
    {"recordings"},
    {"package_actions"},
    {"verification", "reports"},
    {"quantization", "verbs"},
    {"cli"},
    {"__main__"},
)
LAYER = {part: number for number, parts in enumerate(LAYERS) for part in parts}

# All that these parts and folders may import, besides themselves and the foundation.
CLOSED: dict[str, tuple[str, ...]] = {
    "kir": ("crtexport.ir.types",),
    "backends": (
        "crtexport.artifact", "crtexport.ir.types", "crtexport.kir.alignment",
        "crtexport.kir.assembly",
        "crtexport.kir.intrinsics", "crtexport.kir.language", "crtexport.kir.walk",
    ),
    "support": (),
}

# Folders of which none imports another.
STRANGERS: tuple[tuple[str, ...], ...] = (
    ("backends.c", "backends.llvm"),
    ("schedules.scalar", *(f"schedules.{known.name}" for known in INSTRUCTION_SETS)),
)

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60


@dataclass(frozen=True)
class Import:
    """One imported module. ``lazy``: inside a function; ``typing``: only for type checkers."""

    module: str
    line: int
    lazy: bool
    typing: bool

    @property
    def part(self) -> str:
        """Returns the part of crtexport that it belongs to; "" for crtexport itself."""
        return self.module.split(".")[1] if "." in self.module else ""

    def within(self, names: Iterable[str]) -> bool:
        """Returns whether it is one of these modules, or in one of these folders."""
        return any(self.module == name or self.module.startswith(f"{name}.") for name in names)


def files() -> list[Path]:
    """All of the package but what it only carries along, where it is installed."""
    return sorted(path for path in PACKAGE.rglob("*.py") if "_data" not in path.parts)


def name_of(path: Path) -> str:
    """``plan/check.py``: how failures call a file."""
    return path.relative_to(PACKAGE).as_posix()


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def is_module(name: str) -> bool:
    base = PACKAGE.joinpath(*name.split(".")[1:])
    return base.with_suffix(".py").is_file() or (base / "__init__.py").is_file()


@functools.cache
def imports_of(path: Path) -> tuple[Import, ...]:
    return tuple(_imports(tree_of(path), lazy=False, typing=False))


def _imports(node: ast.AST, *, lazy: bool, typing: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import(names=names):
                for alias in names:
                    yield Import(alias.name, child.lineno, lazy, typing)
            case ast.ImportFrom(module=module, names=names, level=0) if module:
                for alias in names:
                    whole = f"{module}.{alias.name}"
                    found = whole if module.startswith("crtexport") and is_module(whole) else module
                    yield Import(found, child.lineno, lazy, typing)
            case ast.ImportFrom():
                pytest.fail(f"relative import in line {child.lineno}")
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                yield from _imports(child, lazy=True, typing=typing)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield from _imports(child, lazy=lazy, typing=True)
            case _:
                yield from _imports(child, lazy=lazy, typing=typing)


def own_imports(path: Path) -> list[Import]:
    """Returns what a file imports of crtexport."""
    return [i for i in imports_of(path) if i.module.split(".")[0] == "crtexport"]


def inside() -> list[Path]:
    """All files but the package's front door, which imports lazily and is tested below."""
    return [path for path in files() if path != PACKAGE / "__init__.py"]


def test_every_part_has_its_place_in_the_order() -> None:
    parts = {part_of(path) for path in inside()}
    assert parts == LAYER.keys() | FOUNDATION, "LAYERS and the folders differ"


def may_import(part: str, found: Import) -> bool:
    if part in CLOSED and not found.within(CLOSED[part]):
        return found.part in FOUNDATION | {part}
    if not found.part or found.part in FOUNDATION | {part}:
        return True
    return part not in FOUNDATION and LAYER[found.part] < LAYER[part]


def test_imports_go_up_only() -> None:
    assert not [
        f"{name_of(path)}:{found.line} imports {found.module}"
        for path in inside() for found in own_imports(path) if not may_import(part_of(path), found)
    ]


def test_what_schedules_share_knows_no_instruction_set() -> None:
    folder = PACKAGE / "schedules" / "common"
    own = ("crtexport.schedules.common",)
    assert not [
        f"{name_of(path)}:{found.line} imports {found.module}"
        for path in sorted(folder.rglob("*.py")) for found in own_imports(path)
        if found.part == "schedules" and not found.within(own)
    ]


def test_each_folder_of_schedules_is_for_an_instruction_set() -> None:
    folders = {path.parent.name for path in (PACKAGE / "schedules").glob("*/__init__.py")}
    sets = {known.name for known in INSTRUCTION_SETS}
    assert folders == {"common", "scalar", "select", *sets}


@pytest.mark.parametrize("folders", STRANGERS)
def test_folders_that_do_not_know_each_other(folders: tuple[str, ...]) -> None:
    wrong = []
    for folder in folders:
        others = [f"crtexport.{other}" for other in folders if other != folder]
        paths = sorted(PACKAGE.joinpath(*folder.split(".")).rglob("*.py"))
        assert paths
        wrong += [
            f"{name_of(path)}:{found.line} imports {found.module}"
            for path in paths for found in own_imports(path) if found.within(others)
        ]
    assert not wrong


def front_door_uses(path: Path) -> Iterator[str]:
    """Names of the front door that a file uses, but for its version."""
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.Attribute(value=ast.Name(id="crtexport"), attr=attribute):
                if attribute != "__version__":
                    yield f"{name_of(path)}:{node.lineno} uses {attribute}"
            case ast.ImportFrom(module="crtexport", names=names):
                for alias in names:
                    if not (is_module(f"crtexport.{alias.name}") or alias.name == "__version__"):
                        yield f"{name_of(path)}:{node.lineno} imports {alias.name}"


def test_only_the_command_line_uses_the_front_door() -> None:
    """Elsewhere ``crtexport`` is good for its version alone: its verbs come last."""
    assert not [
        use for path in inside() if part_of(path) not in ("cli", "__main__")
        for use in front_door_uses(path)
    ]


def test_the_front_door_imports_nothing_until_it_is_used() -> None:
    at_once = [i for i in own_imports(PACKAGE / "__init__.py") if not (i.typing or i.lazy)]
    assert {i.module for i in at_once} == {"crtexport.version"}


def test_llvmlite_is_imported_late_and_in_few_places() -> None:
    users = set()
    for path in files():
        for found in imports_of(path):
            if found.module.split(".")[0] == "llvmlite":
                name = name_of(path)
                assert name.startswith(("backends/llvm/", "simulation/")), name
                assert found.lazy, f"{name}:{found.line} imports llvmlite when it is imported"
                users.add(name)
    assert users, "nothing uses llvmlite: is this test still reading the right files?"


def test_no_modules_import_each_other() -> None:
    """Not even lazily or for types: the order of all that they import has an end."""
    graph = {
        module_name(path): {found.module for found in own_imports(path)} for path in inside()
    }
    order = TopologicalSorter(graph)
    order.prepare()  # raises CycleError, which names the modules


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_files_are_short() -> None:
    lines = {
        path: len(path.read_text(encoding="utf-8").splitlines())
        for path in (*files(), *sorted(TESTS.rglob("*.py")))
    }
    long = [f"{path}: {count} lines" for path, count in lines.items() if count > MAX_FILE_LINES]
    assert not long, "make each two files"


def test_functions_are_short() -> None:
    lengths = [
        (f"{name_of(path)}:{node.lineno} {node.name}", node.end_lineno - node.lineno + 1)
        for path in files() for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    ]
    assert not [f"{name}: {lines} lines" for name, lines in lengths if lines > MAX_FUNCTION_LINES]


def comparisons_of_architectures(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.Compare(left=ast.Attribute(attr="architecture"), comparators=[other]):
                if isinstance(other, ast.Constant) and other.value in ARCHITECTURES:
                    yield f"{name_of(path)}:{node.lineno} compares with {other.value}"


def test_only_a_table_knows_architectures_of_boards_by_name() -> None:
    """Each fact that depends on one is a field of its row in firmware/architectures.py."""
    assert not [found for path in files() for found in comparisons_of_architectures(path)]


def unfit_for_libraries(path: Path) -> Iterator[str]:
    in_cli = part_of(path) in ("cli", "__main__")
    for node in ast.walk(tree_of(path)):
        where = f"{name_of(path)}:{getattr(node, 'lineno', 0)}"
        match node:
            case ast.Assert():
                yield f"{where}: assert is gone under -O; raise an error"
            case ast.Call(func=ast.Name(id="print" | "exit" | "quit" as name)) if not in_cli:
                yield f"{where}: {name}() belongs to the command line"
            case ast.Attribute(value=ast.Name(id="sys"), attr="exit") if not in_cli:
                yield f"{where}: sys.exit() belongs to the command line"
            case ast.Name(id="SystemExit") if not in_cli:
                yield f"{where}: SystemExit belongs to the command line"
            case _:
                pass


def test_libraries_neither_print_nor_exit_nor_assert() -> None:
    assert not [found for path in files() for found in unfit_for_libraries(path)]


# Their docstrings say "Returns …", "Raises …", what to do, or what a thing is.
QUESTIONS = re.compile(r"(What|Whether|How|Who|Whose|Where|When|Which)\b")


def questions(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))) if QUESTIONS.match(text.strip()):
                yield f"{name_of(path)}:{node.lineno}: {text.split()[0]}"


def test_docstrings_are_no_questions() -> None:
    assert not [found for path in files() for found in questions(path)]


# Classes of one name in several modules: they are called as what they stand for is called.
SAME_NAMES: dict[str, tuple[str, set[str]]] = {
    "TensorFlow Lite's schema": ("importers/tflite/schema.py", {
        "Buffer", "Metadata", "Tensor", "TensorType",
    }),
    "operators of networks, as in model files": ("ir/ops/", {"Cast", "If", "Select"}),
}


def modules_by_class() -> dict[str, set[str]]:
    """Returns the files that define each class, by its name."""
    places: dict[str, set[str]] = {}
    for path in files():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, set()).add(name_of(path))
    return places


def test_classes_have_names_of_their_own() -> None:
    """But for those of SAME_NAMES, each of which is still needed."""
    shared = {name: places for name, places in modules_by_class().items() if len(places) > 1}
    listed = {name: start for start, names in SAME_NAMES.values() for name in names}
    assert shared.keys() == listed.keys()
    for name, places in shared.items():
        assert sum(not place.startswith(listed[name]) for place in places) == 1, (name, places)


def test_modules_say_why_they_exist() -> None:
    assert not [name_of(path) for path in files() if not ast.get_docstring(tree_of(path))]


# ---- an operator comes whole or not at all --------------------------------------------------

ATTRIBUTES: dict[str, Any] = {
    "begin": (0,), "stride": (1,), "sizes": (1,), "permutation": (0,),
    "most_per_class": 1, "multiples": (1,), "block_size": 1, "block": (1,), "crops": ((0, 0),),
    "shape": (1,), "paddings": ((0, 0),), "axes": (0,), "axis": 0, "window": (1, 1),
    "function": "f", "arena": 16, "fast": 0, "places": (0, 0), "accelerator": "ethos-u55-128",
    "size": (1, 1), "count": 1, "max_detections": 1, "num_classes": 1, "score_threshold": 0.5,
    "iou_threshold": 0.5, "scale_yxhw": (1.0, 1.0, 1.0, 1.0), "shift": 1, "start": 0, "end": 1,
    "output_scale": 1, "input_correction_bits": 1, "length": 8, "step": 1, "snr_shift": 6,
    "smoothing": 1, "one_minus_smoothing": 1, "alternate_smoothing": 1, "smoothing_bits": 1,
    "alternate_one_minus_smoothing": 1, "min_signal_remaining": 1, "spectral_subtraction_bits": 1,
}


def example(kind: type[Op]) -> Op:
    """An operator with any attributes."""
    needed = {
        f.name for f in fields(kind)
        if f.default is NODEFAULT and f.default_factory is NODEFAULT
    }
    assert needed <= ATTRIBUTES.keys(), "add an example of the new attribute to ATTRIBUTES"
    return kind(**{name: ATTRIBUTES[name] for name in needed})


@pytest.mark.parametrize("kind", OPERATORS)
def test_every_operator_is_frozen_data_with_a_sentence(kind: type[Op]) -> None:
    assert kind.__struct_config__.frozen
    assert (kind.__doc__ or "").endswith(".")
    assert not (kind.__doc__ or "").startswith(f"{kind.__name__}("), "the docstring is generated"
    methods = [n for n, v in vars(kind).items() if callable(v) and not n.startswith("__")]
    assert not methods, "shapes, lowering and printing have places of their own"


@pytest.mark.parametrize("kind", OPERATORS)
def test_every_operator_is_inferred(kind: type[Op]) -> None:
    """The dispatch knows it, and says so in words when its inputs are missing."""
    with pytest.raises(CrtExportError):
        infer(example(kind), ())


COMPUTING = tuple(kind for kind in OPERATORS if not issubclass(kind, Control | Foreign))
"""Operators with kernels; the others run graphs, or what others have compiled."""


@pytest.mark.parametrize("kind", COMPUTING)
def test_every_operator_is_lowered(kind: type[Op]) -> None:
    found = registered(kind)
    assert found is not None, f"{kind.__name__} has no lowering"
    assert found.lower.__doc__
    for rule in found.rules:
        assert rule.__doc__, f"a rule of {kind.__name__} has no sentence for the user"


@pytest.mark.parametrize("kind", [*COMPUTING, *(kind for kind in INTERNAL if kind is not Cascade)])
def test_every_operator_is_lowered_by_the_module_that_is_imported_for_it(kind: type[Op]) -> None:
    """Another module would lower it or not by what was imported before."""
    found = registered(kind)
    assert found is not None
    assert found.lower.__module__ == f"crtexport.lowering.{module_of(kind)}"


def test_the_table_of_lowerings_has_what_their_modules_do_not_say() -> None:
    for module, kinds in ELSEWHERE.items():
        assert not [k for k in kinds if module == f"ops.{k.__module__.rpartition('.')[2]}"]


@pytest.mark.parametrize("kind", OPERATORS)
def test_every_operator_can_be_imported(kind: type[Op]) -> None:
    assert kind.__name__ in NODE_MODELS


def test_every_operator_is_compared_with_the_reference(tmp_path: Path) -> None:
    found: set[type] = set()
    path = tmp_path / "model.tflite"
    for name, dtype in PAIRS:
        path.write_bytes(CASES[name](SeededDraw(0), dtype).content)
        found |= {type(node.op) for node in load(path).nodes}
    for make in NETWORKS.values():
        found |= {type(node.op) for graph in make().graph.nested() for node in graph.nodes}
    found |= {type(case.op) for case in NUMPY_CASES.values()}
    missing = sorted(
        kind.__name__ for kind in set(OPERATORS) - found if not issubclass(kind, Foreign)
    )
    assert not missing, f"no case in tests/differential for {', '.join(missing)}"
