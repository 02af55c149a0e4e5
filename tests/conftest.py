"""Fixtures and options shared by all tests; plain helpers are in ``helpers.py``."""

from __future__ import annotations

import difflib
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import Phase, settings

TESTS = Path(__file__).resolve().parent

# Last, so that `tests.helpers` is found but an installed crtexport is not shadowed by the checkout.
if str(TESTS.parent) not in sys.path:
    sys.path.append(str(TESTS.parent))

from tests.helpers import ROOT, SHARED_MODELS, unavailable  # noqa: E402  (needs the path above)

GOLDEN = TESTS / "golden"

# Programs that tests start in other folders import the same crtexport, with PYTHONPATH=. too.
if os.environ.get("PYTHONPATH"):
    os.environ["PYTHONPATH"] = os.pathsep.join(
        str(Path(path).resolve()) for path in os.environ["PYTHONPATH"].split(os.pathsep)
    )

# Graphs and kernels are many small objects that hardly ever refer to each other in circles.
gc.set_threshold(50_000)

# The reference runtimes are where .ci/setup puts them, by default.
for _variable, _folder in (
    ("CRTEXPORT_TFLITE_PYTHON", ".venv-tflite"), ("CRTEXPORT_LITERT_PYTHON", ".venv-litert"),
    ("CRTEXPORT_ONNX_PYTHON", ".venv-onnx"),
    ("CRTEXPORT_TFLM_PYTHON", ".venv-tflm"), ("CRTEXPORT_QUANTIZER_PYTHON", ".venv-quantizer"),
):
    if (ROOT / _folder).is_dir():
        os.environ.setdefault(_variable, str(ROOT / _folder / "bin" / "python"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden/ anew instead of comparing"
    )


# A loaded computer is no reason to fail; and what CI says of a commit must not depend on luck.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
# Where it matters that a test fails and not why, the simplest example isn't looked for.
settings.register_profile(
    "mutation", deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate)
)
settings.load_profile(
    os.environ.get("CRTEXPORT_EXAMPLES") or ("ci" if os.environ.get("CI") else "local")
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes more than 20 seconds")


def pytest_collection_finish() -> None:
    """What was imported and collected stays, so nothing of it is looked at again as garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keeps what tests export out of the user's packages."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True, scope="session")
def _bytecode() -> None:
    """Lets what is imported from the checkout be compiled once, and not by each process again."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.fixture(scope="session")
def shared_models() -> Path:
    """The folder with the MLPerf Tiny networks; skips where it isn't beside the checkout."""
    if not SHARED_MODELS.is_dir():
        unavailable("models", "the folder ../shared/models is not beside the checkout")
    return SHARED_MODELS


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden("conv.c", text)`` compares with tests/golden/conv.c, byte for byte.

    A missing file fails; ``pytest --update-golden`` writes it.
    """
    update = bool(request.config.getoption("--update-golden"))

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
            return
        again = f"pytest --update-golden {request.node.nodeid!r} writes it"
        if not path.is_file():
            pytest.fail(f"tests/golden/{name} does not exist; {again}", pytrace=False)
        expected = path.read_bytes().decode()
        if text != expected:
            diff = difflib.unified_diff(
                expected.splitlines(), text.splitlines(), f"golden/{name}", "now", lineterm=""
            )
            pytest.fail("\n".join([*diff, again]), pytrace=False)

    return check
