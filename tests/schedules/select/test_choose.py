"""Selection of kernel variants, and the file of measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from crtexport.lowering.registry import Context
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.select import tuning_records
from crtexport.schedules.select.choose import WORTH, digest, parts, preferred
from crtexport.schedules.select.cost_model import Cost
from crtexport.schedules.select.lower import Lowerer
from crtexport.schedules.select.tuning_records import ByRecord, Configuration, Measured, Records
from crtexport.schedules.variants import variants_of
from crtexport.support.errors import CrtExportError
from crtexport.support.levels import LEVELS
from tests.helpers import target_of
from tests.schedules.scalar.test_words import dense

COSTS = st.lists(
    st.builds(Cost, st.integers(1, 10**7), st.integers(1, 10**5)), min_size=1, max_size=8
)
M3 = target_of("mps2_an385")
HERE = Configuration.of(M3, "llvm", "balanced", {"crtexport": "1", "llvm": "2"})


def first(context: Context, found: Sequence[Candidate], part: float) -> Candidate:
    return found[0]


def layer(folder: Path) -> Context:
    graph = dense(folder, np.ones((3, 40), np.int64))
    return Context(graph, graph.nodes[0])


@given(COSTS, st.floats(0, 1))
def test_speed_takes_the_fewest_instructions_and_size_the_least_code(
    costs: list[Cost], part: float
) -> None:
    fast, small = (costs[preferred(costs, level, part)] for level in ("speed", "size"))
    assert fast.instructions == min(cost.instructions for cost in costs)
    assert small.code == min(cost.code for cost in costs)


@pytest.mark.parametrize("level", WORTH)
@given(COSTS, st.floats(0, 1))
def test_levels_between_take_nothing_that_is_worse_in_both(
    level: str, costs: list[Cost], part: float
) -> None:
    chosen = costs[preferred(costs, level, part)]
    assert not any(
        cost.instructions < chosen.instructions and cost.code < chosen.code for cost in costs
    )


@given(COSTS, st.floats(0, 1))
def test_each_level_takes_no_more_code_than_the_next(costs: list[Cost], part: float) -> None:
    chosen = [costs[preferred(costs, level, part)] for level in LEVELS]
    assert [cost.code for cost in chosen] == sorted(cost.code for cost in chosen)
    times = [cost.time for cost in chosen]
    assert times == sorted(times, reverse=True)


def test_code_must_pay_for_itself_where_the_network_spends_its_time() -> None:
    costs = [Cost(1000, 100), Cost(900, 500)]
    assert preferred(costs, "balanced", 0.5) == 1
    assert preferred(costs, "balanced", 0.01) == 0


def test_cycles_count_more_than_instructions() -> None:
    costs = [Cost(1000, 100, cycles=1200), Cost(900, 100, cycles=1300)]
    for level in ("balanced", "speed", "size"):
        assert preferred(costs, level, 0.5) == 0


def test_the_parts_of_a_network_are_its_whole(tmp_path: Path) -> None:
    assert sum(parts(layer(tmp_path).graph).values()) == pytest.approx(1)


def test_a_node_keeps_the_form_that_was_chosen_once(tmp_path: Path) -> None:
    context = layer(tmp_path)
    asked: list[Context] = []

    def last(context: Context, found: Sequence[Candidate], part: float) -> Candidate:
        asked.append(context)
        assert part == 1
        return found[-1]

    (node,) = Lowerer(M3, "balanced", last)(context.graph).nodes
    found = variants_of(context, M3, "balanced")
    assert node.candidates == tuple(variant.name for variant in found)
    assert node.chosen == found[-1].name
    for _ in range(2):
        assert digest(node.lowered.kernel) == digest(found[-1].make().kernel)
    (usual,) = Lowerer(M3, "balanced")(context.graph).nodes
    assert digest(node.lowered.kernel) != digest(usual.lowered.kernel)
    assert asked == [context]


# ---- records


def measured_variants(context: Context, *instructions: int) -> dict[str, Measured]:
    return {
        digest(variant.make().kernel): Measured(instructions=count, code=100)
        for variant, count in zip(variants_of(context, M3, "balanced"), instructions, strict=False)
    }


def test_the_best_of_what_was_measured_is_chosen(tmp_path: Path) -> None:
    context = layer(tmp_path)
    found = variants_of(context, M3, "balanced")
    chooser = ByRecord(measured_variants(context, 900, 700, 800), "balanced", first)
    assert chooser(context, found, 1.0) is found[1]
    assert chooser.layers(Lowerer(M3, "balanced", chooser)(context.graph)) == 1


def test_cycles_decide_where_all_of_them_are_known(tmp_path: Path) -> None:
    context = layer(tmp_path)
    found = variants_of(context, M3, "balanced")
    timed = {
        kernel: replace(record, cycles=cycles) for (kernel, record), cycles
        in zip(measured_variants(context, 900, 700, 800).items(), (1000, 1100, 950), strict=True)
    }
    assert ByRecord(timed, "balanced", first)(context, found, 1.0) is found[2]
    kernel = next(iter(timed))
    partly = {**timed, kernel: replace(timed[kernel], cycles=None)}
    assert ByRecord(partly, "balanced", first)(context, found, 1.0) is found[1]


def test_without_a_measurement_of_the_usual_form_it_stays(tmp_path: Path) -> None:
    context = layer(tmp_path)
    found = variants_of(context, M3, "balanced")
    measured = measured_variants(context, 900, 700)
    del measured[digest(found[0].make().kernel)]
    chooser = ByRecord(measured, "balanced", first)
    assert chooser(context, found, 1.0) is found[0]
    assert chooser.layers(Lowerer(M3, "balanced", chooser)(context.graph)) == 0


def test_records_come_back_from_their_file(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    other = replace(HERE, emit="c")
    one, two = ({character * 64: Measured(instructions=1, code=2)} for character in "ab")
    Records(path).added(HERE, one).added(other, one).added(HERE, two).write()
    first = path.read_bytes()
    found = tuning_records.read(path)
    assert found.of(HERE) == {**one, **two}
    assert found.of(other) == one
    Records(path).added(other, one).added(HERE, two).added(HERE, one).write()
    assert path.read_bytes() == first


def test_another_configuration_has_no_records(tmp_path: Path) -> None:
    found = Records(tmp_path / "r.json").added(HERE, {"a" * 64: Measured(instructions=1, code=2)})
    other = replace(HERE, tools={"crtexport": "2"})
    with pytest.raises(CrtExportError, match=r"nothing was measured for cortex-m3.*crtexport 2"):
        found.required(other)


@pytest.mark.parametrize(("content", "message"), [
    (b"", "isn't a file of measurements"),
    (b"{", "isn't a file of measurements"),
    (b"[]", "isn't a file of measurements"),
    (b"\xff\xfe", "isn't a file of measurements"),
    (b'{"format": "crtexport-tuning-9"}', "crtexport-tuning-1"),
    (b'{"format": "crtexport-tuning-1", "more": 1}', "unknown key 'more'"),
    (b'{"sections": [{"kernels": {}}]}', "sections → 0 → configuration"),
])
def test_other_files_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(content)
    with pytest.raises(CrtExportError, match=message):
        tuning_records.read(path)


def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match=r"can't be read.*No such file"):
        tuning_records.read(tmp_path / "none.json")
    with pytest.raises(CrtExportError, match="can't be written"):
        Records(tmp_path / "none" / "r.json").write()
