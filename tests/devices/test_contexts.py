"""Functions on devices: opened around each call, closed and deactivated however a run ends."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from msgspec.structs import replace

from crtexport.artifact import abi
from crtexport.artifact.contexts import VERBS, context_fields, hook
from crtexport.artifact.model import (
    Artifact,
    BranchStatement,
    Constant,
    ConstantArg,
    ExternalFunction,
    FunctionCall,
    InputArg,
    OutputArg,
    ScalarArg,
    WorkspaceArg,
)
from crtexport.backends.c.header import emit_header
from crtexport.backends.c.source import emit_c
from crtexport.ir.modules import Device
from crtexport.ir.types import ConstantRef
from crtexport.kir.language import Scalar
from crtexport.support.errors import CrtExportError
from crtexport.support.resources import templates_dir
from tests import packed_functions as crt
from tests.backends.c.c_support import COMPILERS, compile_object, run_tool, runtime_include, write
from tests.backends.llvm.llvm_support import (
    BIASES,
    HOST,
    OUTPUTS,
    TARGETS,
    WEIGHTS,
    elf,
    model,
    model_input,
    objects_of,
)
from tests.helpers import require

HERE = Path(__file__).parent
TABLE = np.random.default_rng(3).integers(-128, 128, 256, dtype=np.int8)
DEVICES = (Device("test-acc", 0, "flip"), Device("test-acc", 1, "look up"))
A, O, C, D, R = 1, 2, 3, 4, 5  # noqa: E741  (as crt_simulated_verb has them)
STORY = [(A, 0), (A, 1), (O, 0), (R, 0), (C, 0), (O, 1), (R, 1), (C, 1), (D, 1), (D, 0)]
ENDINGS = {  # what still happens after call n of the story has failed
    0: [], 1: [(D, 0)], 2: [(D, 1), (D, 0)], 3: [(C, 0), (D, 1), (D, 0)], 4: [(D, 1), (D, 0)],
    5: [(D, 1), (D, 0)], 6: [(C, 1), (D, 1), (D, 0)], 7: [(D, 1), (D, 0)], 8: [(D, 0)], 9: [],
}
BACKENDS = ("c", "llvm")


def network(**changes: Any) -> Artifact:
    """Two dense layers, an accelerator's program after each, and a function of the host."""
    base = model()
    first, second, _ = base.calls
    assert isinstance(first, FunctionCall)
    assert isinstance(second, FunctionCall)
    table = Constant("tvmgen_m_table", Scalar.I8, 256, ConstantRef.of(TABLE), 16)
    artifact = replace(
        base,
        constants=(*base.constants, table), functions=base.functions[:2],
        outputs=base.outputs[:1],
        calls=(
            first,
            FunctionCall("acc_flip", (WorkspaceArg(16), WorkspaceArg(48)), "on */ a device"),
            replace(second, args=(WorkspaceArg(48), *second.args[1:3], WorkspaceArg(80),
                                  ScalarArg(8, Scalar.I32))),
            FunctionCall(
                "acc_look_up", (WorkspaceArg(80), WorkspaceArg(96), ConstantArg(table.symbol))
            ),
            FunctionCall("host_reverse", (WorkspaceArg(96), OutputArg(0))),
        ),
        workspace_size=112,
        externals=(
            ExternalFunction("acc_flip", 1, 1, device=0),
            ExternalFunction("acc_look_up", 1, 1, 1, device=1),
            ExternalFunction("host_reverse", 1, 1),
        ),
        devices=DEVICES,
    )
    return replace(artifact, **changes)


def expected(x: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Returns what the network gives, by NumPy."""

    def dense(values: npt.NDArray[np.int8], layer: int, shift: int) -> npt.NDArray[np.int8]:
        sums = WEIGHTS[layer].astype(np.int32) @ values.astype(np.int32) + BIASES[layer]
        return np.clip(sums >> shift, -128, 127).astype(np.int8)

    flipped = dense(x[0], 0, 7) ^ np.int8(0x55)
    found: npt.NDArray[np.int8] = TABLE[dense(flipped, 1, 8).astype(int) + 128][::-1]
    return found


class Program:
    """The network with its simulated devices, in this process."""

    def __init__(self, artifact: Artifact, backend: str) -> None:
        require("gcc")
        folder = Path(mkdtemp(prefix="crtexport-test-"))
        if backend == "c":
            parts = write(artifact, folder)
        else:
            parts = []
            for name, content in objects_of(artifact, HOST).items():
                parts.append(folder / name)
                parts[-1].write_bytes(content)
        devices = templates_dir() / "devices"
        run_tool(
            "gcc", "-std=c99", "-O2", "-fPIC", "-shared", "-Wl,-z,defs", f"-I{runtime_include()}",
            f"-I{folder}", f"-I{devices}", *parts, devices / "crt_simulated.c",
            HERE / "accelerator.c", "-o", folder / "model.so",
        )
        self.library = ctypes.CDLL(str(folder / "model.so"))
        self.library.crt_simulated_call.restype = ctypes.POINTER(ctypes.c_int32 * 3)
        self.artifact = artifact
        self.contexts = (ctypes.c_int32 * 3 * 2)((0, 0, 0), (1, 0, 0))
        self.output = np.zeros((1, OUTPUTS), np.int8)

    def run(self, x: npt.NDArray[np.int8], fail: int = -1, code: int = 0) -> int:
        """Calls ``run`` through the C interface."""
        library, artifact = self.library, self.artifact
        self._begin(fail, code)
        workspace = np.zeros(artifact.workspace_size + 16, np.uint8)
        inputs, outputs = _struct(x.ctypes.data), _struct(self.output.ctypes.data)
        pools = [_struct(workspace.ctypes.data + -workspace.ctypes.data % 16)]
        structs = [inputs, outputs, *(pools if artifact.workspace_caller else [])]
        if artifact.devices:
            structs.append(_struct(*self._addresses()))
        status: int = library.tvmgen_m_run(*map(ctypes.byref, structs))
        return status

    def run_packed(self, x: npt.NDArray[np.int8], codes: tuple[int, ...]) -> int:
        """The same in the packed convention; ``codes`` are the type codes of the contexts."""
        self._begin(-1, 0)
        tensors = [crt.tensor(x), crt.tensor(self.output)]
        given = [ctypes.addressof(t) for t in tensors] + self._addresses()[: len(codes)]
        values = (crt.TVMValue * len(given))(*(crt.TVMValue(v_handle=g) for g in given))
        types = (ctypes.c_int * len(given))(7, 7, *codes)
        status: int = self.library.tvmgen_m_run_packed(
            values, types, len(given), None, None, None
        )
        return status

    def _begin(self, fail: int, code: int) -> None:
        self.library.crt_simulated_reset()
        if fail >= 0:
            self.library.crt_simulated_fail(fail, code)
        self.output[:] = 0
        for number in (0, 1):
            self.contexts[number][:] = (number, 0, 0)

    def _addresses(self) -> list[int]:
        return [ctypes.addressof(context) for context in self.contexts]

    def story(self) -> list[tuple[int, int]]:
        """(verb, device) of each recorded call."""
        count = self.library.crt_simulated_count()
        calls = [self.library.crt_simulated_call(i).contents for i in range(count)]
        return [(call[0], call[1]) for call in calls]

    def at_rest(self) -> bool:
        """Returns whether every device is closed and inactive."""
        return all(list(context)[1:] == [0, 0] for context in self.contexts)


def _struct(*addresses: int) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(addresses))(*addresses)


@cache
def program(backend: str, workspace_caller: bool = False) -> Program:
    return Program(network(workspace_caller=workspace_caller), backend)


@pytest.mark.parametrize("caller", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_two_programs_run_on_their_devices(backend: str, caller: bool) -> None:
    made, x = program(backend, caller), model_input()
    for _ in range(2):
        assert made.run(x) == 0
        np.testing.assert_array_equal(made.output[0], expected(x))
        assert made.story() == STORY
        assert made.at_rest()


@pytest.mark.parametrize("call", ENDINGS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_failure_anywhere_leaves_everything_closed_and_is_reported(
    backend: str, call: int
) -> None:
    made = program(backend)
    for code in (77, -5):
        assert made.run(model_input(), call, code) == code
        assert made.story() == STORY[: call + 1] + ENDINGS[call]
        assert made.at_rest()
    assert made.run(model_input()) == 0, "the next run works again"
    np.testing.assert_array_equal(made.output[0], expected(model_input()))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_function_without_a_device_may_fail_too(backend: str) -> None:
    made = program(backend)
    status = ctypes.c_int32.in_dll(made.library, "host_status")
    status.value = 9
    try:
        assert made.run(model_input()) == 9
        assert made.story() == STORY
    finally:
        status.value = 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_packed_callers_hand_in_contexts(backend: str) -> None:
    made, x = program(backend), model_input()
    assert made.run_packed(x, (3, 3)) == 0
    np.testing.assert_array_equal(made.output[0], expected(x))
    assert made.story() == STORY
    assert made.run_packed(x, (3, 4)) == 0
    assert (A, -1) in made.story(), "a null context reaches the hook as NULL"
    assert made.run_packed(x, (3, 7)) == abi.ERROR_ARGUMENTS
    assert made.run_packed(x, (3,)) == abi.ERROR_ARGUMENTS
    assert made.run_packed(x, ()) == abi.ERROR_ARGUMENTS
    assert made.story() == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_struct_of_contexts_must_be_there(backend: str) -> None:
    made, x = program(backend), model_input()
    made.run(x)
    inputs, outputs = _struct(x.ctypes.data), _struct(made.output.ctypes.data)
    assert made.library.tvmgen_m_run(inputs, outputs, None) == abi.ERROR_NULL


@pytest.mark.parametrize(
    ("condition", "calls"), [(1, STORY), (0, [(A, 0), (A, 1), (D, 1), (D, 0)])]
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_calls_in_branches_are_guarded_too(
    backend: str, condition: int, calls: list[tuple[int, int]]
) -> None:
    base = network()
    made = Program(replace(base, calls=(BranchStatement(InputArg(0), base.calls, ()),)), backend)
    x = model_input()
    x[0, 0] = condition
    assert made.run(x) == 0
    assert made.story() == calls
    if condition:
        assert made.run(x, 6, 11) == 11
        assert made.story() == STORY[:7] + ENDINGS[6]
        assert made.at_rest()


@pytest.mark.parametrize("backend", BACKENDS)
def test_external_functions_need_no_device(backend: str) -> None:
    base = network()
    calls = (*base.calls[:1], FunctionCall("host_reverse", (WorkspaceArg(16), OutputArg(0))))
    made = Program(replace(base, calls=calls, devices=(), externals=base.externals[2:]), backend)
    assert made.run(model_input()) == 0
    assert "_devices" not in emit_header(made.artifact)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reversed_", [False, True])
def test_commands_and_functions_stand_beside_each_other(reversed_: bool, backend: str) -> None:
    """A driver's commands alone, and in front of a function that takes pointers."""
    base = network()
    (table,) = (c for c in base.constants if c.symbol == "tvmgen_m_table")
    between = WorkspaceArg(96) if reversed_ else OutputArg(0)
    commands = FunctionCall(
        "host_commands", (ConstantArg(table.symbol), WorkspaceArg(16), between), "", (256, 10, 10)
    )
    after = [FunctionCall("host_reverse", (between, OutputArg(0)))] if reversed_ else []
    made = Program(replace(
        base, calls=(*base.calls[:1], commands, *after), devices=(),
        externals=(
            ExternalFunction("host_commands", 0, 0, commands=True),
            *(base.externals[2:] if reversed_ else ()),
        ),
    ), backend)
    x = model_input()
    assert made.run(x) == 0
    sums = WEIGHTS[0].astype(np.int32) @ x[0].astype(np.int32) + BIASES[0]
    wanted = np.clip(sums >> 7, -128, 127)[:OUTPUTS] + int(TABLE[0])
    order = -1 if reversed_ else 1
    np.testing.assert_array_equal(made.output[0], wanted.astype(np.int8)[::order])


@pytest.mark.parametrize("compiler", COMPILERS)
def test_generated_c_and_the_simulation_compile_without_a_warning(
    compiler: str, tmp_path: Path
) -> None:
    for caller in (False, True):
        folder = tmp_path / str(caller)
        folder.mkdir()
        for path in write(network(workspace_caller=caller), folder):
            compile_object(path, compiler)
    devices = templates_dir() / "devices"
    for source in (devices / "crt_simulated.c", HERE / "accelerator.c"):
        copy = tmp_path / source.name
        copy.write_text(source.read_text())
        compile_object(copy, compiler, f"-I{devices}")


def test_the_header_is_c_plus_plus_too(tmp_path: Path) -> None:
    header = emit_header(network())
    (tmp_path / "tvmgen_m.h").write_text(header)
    assert 'void *test_acc_0; /* "test-acc" 0, program "flip" */' in header
    source = tmp_path / "app.cpp"
    source.write_text(
        '#include "tvmgen_m.h"\nstatic tvmgen_m_devices devices = {nullptr, nullptr};\n'
        "int main() { tvmgen_m_inputs i{}; tvmgen_m_outputs o{};"
        " return tvmgen_m_run(&i, &o, &devices); }\n"
    )
    subprocess.run(
        [require("g++"), "-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", source],
        check=True,
    )


@pytest.mark.parametrize("target", ["m0", "m4", "rv32", "i386"])
def test_objects_of_every_target_need_only_what_was_announced(target: str) -> None:
    content = objects_of(network(), TARGETS[target])["m_lib0.o"]
    symbols = elf(content).get_section_by_name(".symtab").iter_symbols()
    needed = {s.name for s in symbols if s["st_shndx"] == "SHN_UNDEF" and s.name}
    constants = {constant.symbol for constant in network().constants}
    assert needed - constants - {"memcpy"} == {
        "acc_flip", "acc_look_up", "host_reverse", *(hook(DEVICES[0], verb) for verb in VERBS)
    }


def test_names_follow_tvms() -> None:
    assert [hook(Device("ethos-u"), verb) for verb in VERBS] == [
        "TVMDeviceEthosUActivate", "TVMDeviceEthosUOpen", "TVMDeviceEthosUClose",
        "TVMDeviceEthosUDeactivate",
    ]
    assert context_fields((Device("ethos-u"),)) == ("ethos_u",)
    assert context_fields(DEVICES) == ("test_acc_0", "test_acc_1")
    assert context_fields((Device("n", 0, "a b"), Device("n", 0, "c"), Device("m", 3))) == (
        "n_0_a_b", "n_0_c", "m"
    )


def test_what_can_not_be_told_apart_is_refused() -> None:
    with pytest.raises(CrtExportError, match="both be called 'n_0_a'"):
        context_fields((Device("n", 0, "a"), Device("n", 0, "a")))
    with pytest.raises(CrtExportError, match="needs letters or digits"):
        hook(Device("-"), "Open")


@pytest.mark.parametrize(
    ("externals", "problem"),
    [
        ((ExternalFunction("a-b", 1, 1),), "identifier of C"),
        ((ExternalFunction("m_dense", 1, 1),), "(two functions have this symbol|defined twice)"),
        ((ExternalFunction("f", 1, 1), ExternalFunction("f", 1, 1)), "two functions|defined twice"),
        ((ExternalFunction("f", 1, 1, device=2),), "the function's device is not there"),
        ((), "nothing runs on this device"),
    ],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_inconsistent_artifacts_are_refused(
    externals: tuple[ExternalFunction, ...], problem: str, backend: str
) -> None:
    artifact = model(devices=DEVICES, externals=externals)
    with pytest.raises(CrtExportError, match=problem):
        emit_c(artifact) if backend == "c" else objects_of(artifact, HOST)


@pytest.mark.parametrize("backend", BACKENDS)
def test_calls_must_fit_the_function(backend: str) -> None:
    calls = network().calls
    wrong = replace(calls[1], args=calls[1].args[:1])  # type: ignore[union-attr]
    artifact = network(calls=(calls[0], wrong, *itertools.islice(calls, 2, None)))
    with pytest.raises(CrtExportError, match="arguments"):
        emit_c(artifact) if backend == "c" else objects_of(artifact, HOST)


@pytest.mark.parametrize("to", [InputArg(0), ConstantArg("tvmgen_m_table")])
@pytest.mark.parametrize("backend", BACKENDS)
def test_functions_of_other_tools_write_no_memory_that_is_only_read(
    to: InputArg | ConstantArg, backend: str
) -> None:
    *others, last = network().calls
    for wrong in (
        [*others, FunctionCall("host_reverse", (WorkspaceArg(96), to))],
        [*others[:-1], FunctionCall(
            "acc_look_up", (WorkspaceArg(80), to, ConstantArg("tvmgen_m_table"))), last],
    ):
        artifact = network(calls=tuple(wrong))
        with pytest.raises(CrtExportError, match="would be written, but is read-only memory"):
            emit_c(artifact) if backend == "c" else objects_of(artifact, HOST)
