"""Networks whose input is given row by row, compiled for this computer."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from crtexport.artifact.model import Artifact
from crtexport.firmware.board import load_board
from crtexport.simulation.library import LoadedCode
from crtexport.simulation.simulation import _pointers
from tests.fuzz.artifacts import compiled_c, compiled_llvm

Array = npt.NDArray[Any]


def by_c(artifact: Artifact, folder: Path) -> LoadedCode:
    return compiled_c([artifact], folder)


def by_llvm(artifact: Artifact, _folder: Path) -> LoadedCode:
    return compiled_llvm([artifact], load_board("host"), "balanced")


class Fed:
    """The functions of an exported network, with memory for them."""

    def __init__(self, artifact: Artifact, library: LoadedCode) -> None:
        self.artifact, self.library = artifact, library
        self.output = np.zeros(artifact.outputs[0].type.shape, np.int8)
        self._workspace = np.full(artifact.workspace_size + 16, 0xA5, np.uint8)
        start = -self._workspace.ctypes.data % 16
        self._pools = _pointers([self._workspace.ctypes.data + start])

    def call(self, name: str, *arguments: Any) -> int:
        kinds: list[Any] = [
            ctypes.c_uint32 if isinstance(a, int) else ctypes.c_void_p for a in arguments
        ]
        given = list(arguments)
        if self.artifact.workspace_caller:
            kinds.append(ctypes.c_void_p)
            given.append(ctypes.byref(self._pools))
        address = self.library.address(f"tvmgen_fed_{name}")
        assert address is not None
        return int(ctypes.CFUNCTYPE(ctypes.c_int32, *kinds)(address)(*given))

    def feed(self, rows: Array) -> int:
        given = rows.copy()
        code = self.call("feed", ctypes.c_void_p(given.ctypes.data), len(given))
        given[:] = 99
        return code

    def finish(self) -> int:
        return self.call("finish", ctypes.byref(_pointers([self.output.ctypes.data])))


def fed_by(export: Callable[[bool], Artifact]) -> Any:
    """Returns a fixture: what ``export`` returns, as C and as LLVM objects, without and with the
    workspace in buffers of the caller, which is what it is given."""

    @pytest.fixture(
        scope="module", params=[(b, c) for b in (by_c, by_llvm) for c in (False, True)],
        ids=["c", "c-caller", "llvm", "llvm-caller"],
    )
    def fed(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Fed:
        build, caller = request.param
        artifact = export(caller)
        return Fed(artifact, build(artifact, tmp_path_factory.mktemp("fed")))

    return fed
