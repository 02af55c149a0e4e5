"""Networks that keep state: 200 steps against the reference runtime, reset in between."""

from __future__ import annotations

import ctypes
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from msgspec.structs import replace

import crtexport
from crtexport.artifact import abi
from crtexport.backends.c.header import emit_header
from crtexport.backends.c.source import emit_c
from crtexport.firmware.board import load_board
from crtexport.importers import load
from crtexport.importers.crtjson import save
from crtexport.ir.graph import Graph, Node, Tensor, Variable
from crtexport.ir.ops import Add, AssignVariable, Concatenation, ReadVariable, Softmax
from crtexport.ir.types import ConstantRef, DType, Quantization, TensorType
from crtexport.ir.verify import verify
from crtexport.mlf.reader import open_package
from crtexport.pipeline import driver
from crtexport.plan import plan
from crtexport.plan.check import PlanError, check
from crtexport.simulation.package import load_package
from crtexport.simulation.tflite_writer import to_tflite
from crtexport.support.errors import CrtExportError
from crtexport.verification import FLOAT_TOLERANCE
from tests import packed_functions as crt
from tests.differential.cases_recurrent import CASES
from tests.differential.draw import SeededDraw
from tests.helpers import reference, require_reference
from tests.lowered import without_kernels
from tests.packed_functions import reset_packed, run_packed

Array = npt.NDArray[Any]

STEPS = 200


def _graph(
    name: str, tensors: tuple[Tensor, ...], nodes: tuple[Node, ...], outputs: tuple[int, ...]
) -> Graph:
    return Graph(name, tensors, nodes, (0,), outputs, source=f"{name}.tflite", sha256="0" * 64)


def accumulator() -> Graph:
    """y = total + x; total = y, from an initial value that is not zero."""
    type_ = TensorType(DType.FLOAT32, (1, 3))
    start = Variable(ConstantRef.of(np.array([[1.5, -2.0, 0.0]], np.float32)))
    tensors = (
        Tensor("x", type_), Tensor("total", type_, variable=start), Tensor("before", type_),
        Tensor("y", type_),
    )
    nodes = (
        Node(ReadVariable(), (1,), (2,)), Node(Add(), (2, 0), (3,)),
        Node(AssignVariable(), (1, 3), ()),
    )
    return _graph("accumulator", tensors, nodes, (3,))


def delay_line() -> Graph:
    """Int8: the last input, the one before, and a softmax over both; zero points as start."""
    quant = Quantization((0.0625,), (-7,))
    frame, both = TensorType(DType.INT8, (1, 4), quant), TensorType(DType.INT8, (1, 8), quant)
    start = Variable(ConstantRef.of(np.full((1, 4), -7, np.int8)))
    result = TensorType(DType.INT8, (1, 8), Quantization((1 / 256,), (-128,)))
    tensors = (
        Tensor("x", frame), Tensor("kept", frame, variable=start), Tensor("before", frame),
        Tensor("both", both), Tensor("y", result),
    )
    nodes = (
        Node(ReadVariable(), (1,), (2,)), Node(AssignVariable(), (1, 0), ()),
        Node(Concatenation(1), (2, 0), (3,)), Node(Softmax(), (3,), (4,)),
    )
    return _graph("delay_line", tensors, nodes, (4,))


def one_of(name: str, dtype: str, seed: int) -> Callable[[], bytes]:
    """A network of one operator with drawn shapes and scales."""
    return lambda: CASES[name](SeededDraw(seed), dtype).content


NETWORKS: dict[str, Callable[[], bytes]] = {
    "svdf_int8": one_of("svdf", "int8", 1),
    "svdf_float32": one_of("svdf", "float32", 2),
    "lstm_int8": one_of("unidirectional_sequence_lstm", "int8", 3),
    "lstm_float32": one_of("unidirectional_sequence_lstm", "float32", 4),
    "accumulator": lambda: to_tflite(accumulator()),
    "delay_line": lambda: to_tflite(delay_line()),
}


"""Those that keep their state in variable tensors."""


def exported(
    content: bytes, folder: Path, emit: str, workspace: str, board: str = "host"
) -> Path:
    model = folder / "model.tflite"
    model.write_bytes(content)
    package = folder / "model.tar"
    crtexport.export(model, board=board, emit=emit, workspace=workspace, output=package)
    return package


def inputs_of(graph: Graph, rng: np.random.Generator) -> list[Array]:
    found: list[Array] = []
    for tensor in graph.inputs:
        type_ = graph.type(tensor)
        if type_.dtype.is_float:
            found.append(rng.standard_normal(type_.shape).astype(np.float32))
        else:
            low, high = type_.dtype.limits
            found.append(rng.integers(low, high + 1, type_.shape).astype(type_.dtype.numpy))
    return found


def same(ours: Sequence[Array], theirs: Sequence[Array], scales: list[float]) -> None:
    for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if b.dtype != np.float32:
            np.testing.assert_array_equal(a, b)
            continue
        scales[index] = max(scales[index], float(np.abs(b).max()))
        np.testing.assert_allclose(a, b, rtol=0, atol=FLOAT_TOLERANCE * scales[index])


@pytest.mark.parametrize("workspace", ["static", "caller"])
@pytest.mark.parametrize("emit", ["c", "llvm"])
@pytest.mark.parametrize("name", NETWORKS)
def test_steps_equal_the_reference(name: str, emit: str, workspace: str, tmp_path: Path) -> None:
    content = NETWORKS[name]()
    package = exported(content, tmp_path, emit, workspace)
    graph = load(tmp_path / "model.tflite")
    simulation, runtime = load_package(open_package(package)), reference(content)
    rng = np.random.default_rng(0)
    scales = [0.0] * len(graph.outputs)
    for step in range(STEPS):
        if step in (70, 71, 150):
            simulation.reset()
            runtime = reference(content)
        given = inputs_of(graph, rng)
        same(simulation.run(given), runtime.run(given), scales)


@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_callers_that_bring_their_own_state_do_not_meet(emit: str, tmp_path: Path) -> None:
    package = exported(NETWORKS["accumulator"](), tmp_path, emit, "caller")
    first = load_package(open_package(package))
    second = replace(first, _state=[])
    x = np.ones((1, 3), np.float32)
    assert first.run([x])[0].tolist() == [[2.5, -1.0, 1.0]]
    assert first.run([x])[0].tolist() == [[3.5, 0.0, 2.0]]
    assert second.run([x])[0].tolist() == [[2.5, -1.0, 1.0]]
    first.reset()
    assert first.run([x])[0].tolist() == [[2.5, -1.0, 1.0]]
    assert second.run([x])[0].tolist() == [[3.5, 0.0, 2.0]]


def test_packed_functions_take_the_state_as_their_last_argument(tmp_path: Path) -> None:
    simulation = load_package(
        open_package(exported(NETWORKS["accumulator"](), tmp_path, "c", "caller"))
    )
    x = np.ones((1, 3), np.float32)
    assert run_packed(simulation, [x])[0].tolist() == [[2.5, -1.0, 1.0]]
    assert run_packed(simulation, [x])[0].tolist() == [[3.5, 0.0, 2.0]]


@pytest.mark.parametrize("workspace", ["static", "caller"])
@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_reset_can_be_called_by_name(emit: str, workspace: str, tmp_path: Path) -> None:
    simulation = load_package(
        open_package(exported(NETWORKS["accumulator"](), tmp_path, emit, workspace))
    )
    x = np.ones((1, 3), np.float32)
    for _ in range(2):
        assert simulation.run([x])[0].tolist() == [[2.5, -1.0, 1.0]]
        assert simulation.run([x])[0].tolist() == [[3.5, 0.0, 2.0]]
        assert reset_packed(simulation) == 0
    call = crt.SystemLib(simulation.library).call
    wrong = [crt.tensor(x), crt.tensor(x)]
    assert call("tvmgen_model_reset", wrong).code == abi.ERROR_ARGUMENTS


@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_reset_by_name_refuses_null_pointers_and_other_types(emit: str, tmp_path: Path) -> None:
    simulation = load_package(
        open_package(exported(NETWORKS["accumulator"](), tmp_path, emit, "caller"))
    )
    reset = crt.SystemLib(simulation.library).function("tvmgen_model_reset")
    kept = crt.tensor(np.ones(16, np.uint8))

    def code(values: Any, codes: Any, count: int = 1) -> int:
        result, kind = crt.TVMValue(), ctypes.c_int(0)
        return reset(values, codes, count, ctypes.byref(result), ctypes.byref(kind), None)

    def given(at: int) -> ctypes.Array[crt.TVMValue]:
        values = (crt.TVMValue * 1)()
        values[0].v_handle = at
        return values

    kind = (ctypes.c_int * 1)(abi.TYPE_CODE_DLTENSOR)
    assert code(None, kind) == abi.ERROR_NULL
    assert code(given(ctypes.addressof(kept)), None) == abi.ERROR_NULL
    assert code(given(0), kind) == abi.ERROR_NULL
    assert code(given(ctypes.addressof(kept)), kind, 0) == abi.ERROR_ARGUMENTS
    assert code(given(ctypes.addressof(kept)), (ctypes.c_int * 1)(11)) == abi.ERROR_ARGUMENTS
    assert code(given(ctypes.addressof(kept)), kind) == 0


def test_metadata_and_header_say_what_is_kept(tmp_path: Path) -> None:
    package = open_package(exported(NETWORKS["delay_line"](), tmp_path, "c", "static"))
    section = package.module_section
    assert section is not None
    (kept,) = section.state.variables
    assert (kept.name, kept.dtype, kept.shape, kept.offset) == ("kept", "int8", (1, 4), 0)
    prepared = driver.prepare(delay_line(), load_board("host"))
    header = emit_header(prepared.artifact)
    assert "#define TVMGEN_DELAY_LINE_STATE_SIZE 16\n" in header
    assert '"kept" int8[1x4]: bytes 0 to 4' in header
    assert "int32_t tvmgen_delay_line_reset(void);" in header


@pytest.mark.parametrize("name", ["delay_line", "lstm_int8"])
def test_verify_compares_the_samples_as_a_stream(name: str, tmp_path: Path) -> None:
    require_reference()
    (tmp_path / "model.tflite").write_bytes(NETWORKS[name]())
    result = crtexport.verify(tmp_path / "model.tflite", samples=20)
    assert result.agrees
    assert result.outputs[0].largest_difference == 0.0


@pytest.mark.parametrize("board", ["mps2_an386", "qemu_riscv32"])
def test_state_is_in_bss_and_nothing_else_is_writable(board: str, tmp_path: Path) -> None:
    package = open_package(exported(NETWORKS["delay_line"](), tmp_path, "llvm", "static", board))
    writable: dict[str, int] = {}
    for content in package.objects.values():
        for section in ELFFile(io.BytesIO(content.read())).iter_sections():
            if section["sh_flags"] & SH_FLAGS.SHF_WRITE and section["sh_size"]:
                writable[section.name] = section["sh_type"]
    assert ".bss.tvmgen_model.state" in writable
    assert set(writable.values()) == {"SHT_NOBITS"}


def test_what_may_not_touch_a_variable_is_refused() -> None:
    graph = delay_line()
    reader = replace(graph.nodes[2], inputs=(1, 0))
    with pytest.raises(CrtExportError, match=r"tensor 1 'kept' is a variable"):
        verify(graph.with_nodes((*graph.nodes[:2], reader, graph.nodes[3])))
    with pytest.raises(CrtExportError, match=r"tensor 0 'x' must be a variable"):
        verify(graph.with_nodes((Node(ReadVariable(), (0,), (2,)), *graph.nodes[1:])))


def test_a_plan_that_writes_before_it_reads_is_found_out() -> None:
    graph = delay_line()
    planned = plan(without_kernels(graph))
    check(graph, planned)
    first, second, *rest = planned.steps
    assert (first.node, second.node) == (0, 1)
    with pytest.raises(PlanError, match="in another order"):
        check(graph, replace(planned, steps=(second, first, *rest)))


def test_a_plan_without_room_for_what_is_kept_is_found_out() -> None:
    graph = delay_line()
    planned = plan(without_kernels(graph))
    check(graph, replace(planned, state_size=4))
    with pytest.raises(PlanError, match="3 bytes of state, but 4 are kept"):
        check(graph, replace(planned, state_size=3))


def test_models_without_state_have_no_reset() -> None:
    type_ = TensorType(DType.FLOAT32, (2,))
    graph = Graph(
        "plain", (Tensor("x", type_), Tensor("y", type_)), (Node(Softmax(), (0,), (1,)),),
        (0,), (1,),
    )
    artifact = driver.prepare(graph, load_board("host")).artifact
    assert "reset" not in emit_header(artifact) + emit_c(artifact)["plain_lib0.c"]


def test_variables_survive_model_json(tmp_path: Path) -> None:
    graph = delay_line()
    save(graph, tmp_path / "model.json")
    read = load(tmp_path / "model.json")
    assert read.variables == graph.variables
    variable = read.tensors[1].variable
    assert variable is not None
    assert variable.initial is not None
    assert variable.initial.read() == b"\xf9" * 4


@pytest.mark.qemu
@pytest.mark.parametrize("workspace", ["static", "caller"])
@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_firmware_runs_samples_as_a_stream(emit: str, workspace: str, tmp_path: Path) -> None:
    package = exported(NETWORKS["delay_line"](), tmp_path, emit, workspace, "mps2_an386")
    graph = load(tmp_path / "model.tflite")
    rng = np.random.default_rng(1)
    samples = [inputs_of(graph, rng) for _ in range(5)]
    given = {"x": np.stack([row[0] for row in samples])}
    result = crtexport.run(package, given)
    runtime = reference(NETWORKS["delay_line"]())
    for ours, row in zip(result.outputs, samples, strict=True):
        same(ours, runtime.run(row), [0.0])
    assert result.instructions_first == result.instructions_second
