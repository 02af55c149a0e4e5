"""Pages are whole, harmless, the same each time, and look right in a browser."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from crtexport.ir.ops import Abs, Add, Conv2D, Pad, Relu, Reshape
from crtexport.pipeline.options import ExportOptions
from crtexport.pipeline.summary.records import Finding, ReportedScratch
from crtexport.reports import figures
from crtexport.reports.collect import report
from crtexport.reports.figures import Report
from crtexport.reports.measure import MeasureSetting
from crtexport.reports.page.file import write
from crtexport.reports.page.html import render
from crtexport.reports.page.rail import ROW, rail
from crtexport.reports.page.timeline import HEIGHT, TOP, WIDTH, _round_step, timeline
from crtexport.reports.page.treemap import TreemapBox, treemap
from crtexport.support.errors import CrtExportError
from tests.cli.support import DIGITS
from tests.control.networks import NETWORKS
from tests.helpers import shared_model
from tests.pipeline.test_fuse_policy import chain, means, pyramid
from tests.plan.graphs import GraphBuilder
from tests.reports.browser import look, screenshot
from tests.reports.harmless import EVIL, check_harmless

BOARD = "nrf52840dk"


@pytest.fixture(scope="module")
def digits() -> Report:
    return report(MeasureSetting(DIGITS, BOARD), "crtexport report model.json")


@pytest.fixture(scope="module")
def vww() -> Report:
    return report(MeasureSetting(shared_model("vww96_int8"), "mps2_an386"))


def test_a_page_asks_for_nothing_and_is_the_same_each_time(digits: Report) -> None:
    text = render(digits)
    check_harmless(text)
    assert render(digits) == text
    assert "digits" in text


def test_what_is_not_known_is_said(digits: Report) -> None:
    sources = render(report(MeasureSetting(DIGITS, BOARD, ExportOptions(emit="c"))))
    assert "nothing has compiled the C sources" in sources
    assert "nothing has compiled" not in render(digits)


def test_diff_reads_pages(digits: Report, tmp_path: Path) -> None:
    write(digits, tmp_path / "x.html")
    assert figures.to_data(figures.read(tmp_path / "x.html")) == figures.to_data(digits)


def test_names_from_models_are_only_text(digits: Report, tmp_path: Path) -> None:
    evil = replace(
        digits, model=replace(digits.model, name=EVIL, source=EVIL),
        board=replace(digits.board, description=EVIL),
        layers=tuple(replace(one, name=EVIL, operator=EVIL, by=EVIL) for one in digits.layers),
        steps=tuple(replace(one, name=EVIL, operator=EVIL) for one in digits.steps),
        tensors=tuple(replace(one, name=EVIL) for one in digits.tensors),
        findings=(Finding("warning", EVIL, EVIL), Finding("fused", EVIL, EVIL)),
        reproduce=replace(digits.reproduce, command=EVIL, options={EVIL: EVIL}),
        sources={EVIL: EVIL},
    )
    text = render(evil)
    check_harmless(text)
    assert "\u202e" not in text
    assert "\x1b" not in text
    write(evil, tmp_path / "x.html")
    assert figures.to_data(figures.read(tmp_path / "x.html")) == figures.to_data(evil)


def test_a_model_with_such_names_has_a_page(tmp_path: Path) -> None:
    document = json.loads(DIGITS.read_text())
    document["name"] = EVIL[:20]
    (tmp_path / "model.json").write_text(json.dumps(document))
    (tmp_path / "model.safetensors").write_bytes(
        DIGITS.with_name("model.safetensors").read_bytes()
    )
    text = render(report(MeasureSetting(tmp_path / "model.json", BOARD)))
    check_harmless(text)
    assert "&lt;script&gt;" in text or "&#34;&gt;&lt;script" in text


@pytest.mark.models
def test_a_page_is_small(vww: Report) -> None:
    text = render(vww)
    assert len(text.encode()) < 1_000_000
    for peer in ("TFLM + CMSIS-NN", "microTVM"):
        assert peer in text


@pytest.mark.models
def test_figures_of_the_same_processor_are_shown(tmp_path: Path) -> None:
    model = shared_model("kws_int8")
    named = {}
    for board in (BOARD, "nucleo_h743zi"):
        found = report(MeasureSetting(model, board))
        named[board] = {peer.board for peer in found.peers}
        assert ("on mps2_an386, which has the same processor" in render(found)) == (board == BOARD)
    assert named == {BOARD: {"mps2_an386"}, "nucleo_h743zi": set()}


def test_operators_without_code_are_told_with_what_computes_them() -> None:
    """A pad goes into the convolution behind it, Relu into the one before; one operator is constant
    and one is read by nobody."""
    b = GraphBuilder()
    x = b.input(1, 4, 4, 1)
    padded = b.node(Pad(((0, 0), (1, 1), (1, 1), (0, 0))), x)
    ones = b.constant(np.ones(2, np.float32))
    made = b.node(Conv2D(), padded, b.constant(np.ones((2, 3, 3, 1), np.float32)), ones)
    positive = b.node(Relu(), made)
    added = b.node(Reshape((1, 2)), ones)
    b.node(Abs(), x)
    found = report(MeasureSetting(b.finish(b.node(Add(), positive, added)), BOARD))
    why = {one.what: one.why for one in found.findings if one.kind == "removed"}
    assert why == {
        "operator 0 (Pad)": "fused into operator 1 (Conv2D)",
        "operator 2 (Relu)": "fused into operator 1 (Conv2D)",
        "operator 3 (Reshape)": "its result is constant, and was computed while exporting",
        "operator 4 (Abs)": "no output of the network depends on it",
    }


def test_layers_that_run_row_by_row_are_marked(tmp_path: Path) -> None:
    """Also where they are many, of which names the first and the last are shown."""
    found = report(MeasureSetting(pyramid(tmp_path), BOARD, ExportOptions(optimize="ram")))
    (step,) = [one for one in found.steps if one.row_by_row]
    text = render(found)
    check_harmless(text)
    assert "<em>row by row</em>" in text
    assert step.operator.count(" + ") > 2
    assert step.operator not in text.split("crtexport-report")[0]
    assert "only the rows that are still needed are in memory" in text


def test_findings_of_one_reason_are_one_row(digits: Report) -> None:
    same = [Finding("removed", f"operator {n}", "as it is") for n in range(9)]
    text = render(replace(digits, findings=(*same, Finding("removed", "last", "else"))))
    assert "operator 0, operator 1, operator 2 and 6 more" in text
    assert "Removed operators <span>10</span>" in text


@pytest.mark.parametrize("size", [1, 9, 10, 99, 38212, 1_206_324, 10**9])
def test_the_scale_of_bytes_has_round_numbers(size: int) -> None:
    step = _round_step(size)
    assert size / 5 <= step <= max(size, 2)
    assert str(step).rstrip("0") in ("1", "2", "5")


def test_measured_pages_show_the_cycles_of_each_layer(tmp_path: Path) -> None:
    found = report(MeasureSetting(DIGITS, "mps2_an386"), measured=True)
    whole = found.totals.cycles
    assert whole is not None
    assert whole.low <= whole.mid <= whole.high
    layers = [one.cycles for one in found.layers if one.cycles is not None]
    assert len(layers) == len(found.layers)
    # All but the entry point, which calls them.
    assert whole.mid - 200 < sum(one.mid for one in layers) < whole.mid
    text = render(found)
    check_harmless(text)
    for number in (whole.mid, *(one.mid for one in layers)):
        assert f'<td class="n">{number:,}</td>' in text
    write(found, tmp_path / "digits.html")
    assert figures.to_data(figures.read(tmp_path / "digits.html")) == figures.to_data(found)


def test_estimated_pages_have_no_cycles(digits: Report) -> None:
    assert digits.totals.cycles is None
    assert "Cycles" not in render(digits).split("<script", 1)[0].replace("not cycles", "")


@pytest.mark.parametrize(("network", "count"), [(chain, 3), (means, 2), (pyramid, 1)])
def test_fused_layers_are_named(
    network: Callable[[Path], Path], count: int, tmp_path: Path
) -> None:
    found = report(MeasureSetting(network(tmp_path), "mps2_an386"))
    named = [one.what for one in found.findings if one.kind == "fused"]
    assert len(named) == count
    assert named == [" + ".join(layer.fused) for layer in found.layers if layer.fused]
    text = render(found)
    check_harmless(text)
    assert text.count("<em>fused</em>") == count


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_that_decide_have_pages(name: str) -> None:
    """Whatever runs within a node is part of its row; how often isn't known without counting."""
    found = report(MeasureSetting(NETWORKS[name]().graph, "mps2_an386"))
    assert found.totals.instructions_are == "unknown"
    assert {layer.step for layer in found.layers} <= set(range(len(found.steps)))
    assert all(layer.runs is None for layer in found.layers)
    assert any("branches and loops" in one.why for one in found.findings)
    check_harmless(render(found))


@pytest.mark.parametrize("name", ["x.txt", "x", "x.tar"])
def test_other_endings_are_refused(name: str, digits: Report, tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match=r"a report is written as \.html"):
        write(digits, tmp_path / name)
    with pytest.raises(CrtExportError, match="there is no such folder"):
        write(digits, tmp_path / "none" / "x.html")
    assert not list(tmp_path.iterdir())


@given(
    sizes=st.lists(st.integers(1, 10**9), min_size=1, max_size=60),
    width=st.integers(10, 2000), height=st.integers(10, 2000),
)
@example(sizes=[463128986, 1], width=34, height=33)
def test_treemaps_have_the_areas_and_no_overlaps(
    sizes: list[int], width: int, height: int
) -> None:
    sizes.sort(reverse=True)
    whole = TreemapBox(3, 5, width, height)
    boxes = treemap(sizes, whole)
    for size, box in zip(sizes, boxes, strict=True):
        assert box.width * box.height == pytest.approx(width * height * size / sum(sizes))
        assert box.x >= 3 - 1e-6
        assert box.y >= 5 - 1e-6
        assert box.x + box.width <= 3 + width + 1e-6
        assert box.y + box.height <= 5 + height + 1e-6
    for a, b in combinations(boxes, 2):
        common = min(a.x + a.width, b.x + b.width) - max(a.x, b.x)
        high = min(a.y + a.height, b.y + b.height) - max(a.y, b.y)
        assert common < 1e-6 or high < 1e-6


@given(st.data())
def test_edges_that_pass_a_row_together_have_lanes_of_their_own(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 12))
    edges = data.draw(st.lists(
        st.integers(0, count - 2).flatmap(
            lambda start: st.tuples(st.just(start), st.integers(start + 1, count - 1))
        ), max_size=20,
    ))
    drawn = rail(count, edges)
    assert len(drawn.rows) == count
    for number, row in enumerate(drawn.rows):
        passing = [line.path for line in row if line.path.endswith(f",0V{ROW}")]
        assert len(passing) == len(set(passing))
        through = {start for start, end in edges if start < number < end}
        assert len(passing) == len(through)
        assert all(0 <= int(path[1:].split(",")[0]) <= drawn.width for path in passing)


@pytest.mark.models
def test_tensors_of_the_workspace_are_drawn_where_they_lie(vww: Report) -> None:
    drawn = timeline(vww)
    assert drawn is not None
    inside = [one for one in vww.tensors if one.space == "workspace"]
    assert sum(len(shape.bars) for shape in drawn.shapes) == len(inside)
    assert len(drawn.shapes) < len(inside), "some work in place"
    assert drawn.peak_bytes == vww.totals.workspace
    for bar in (*drawn.scratch, *(bar for shape in drawn.shapes for bar in shape.bars)):
        assert bar.y >= TOP
        assert bar.y + bar.height <= TOP + HEIGHT + 1.01
        assert bar.x + bar.width <= WIDTH + 0.01
    for a, b in combinations(drawn.shapes, 2):
        for one in a.bars:
            for other in b.bars:
                wide = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
                high = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
                # A tensor of few bytes is a pixel high.
                assert wide < 1e-6 or high < 1.01


@pytest.mark.parametrize("dark", [False, True])
def test_it_looks_right_in_a_browser(dark: bool, digits: Report, tmp_path: Path) -> None:
    check_in_browser(digits, tmp_path, dark=dark)


@pytest.mark.models
def test_a_network_with_bypasses_looks_right(tmp_path: Path) -> None:
    made = report(MeasureSetting(shared_model("resnet8_fp32"), "host", ExportOptions(emit="c")))
    check_in_browser(made, tmp_path)


@pytest.mark.models
@pytest.mark.parametrize("width", [1200, 800])
def test_a_larger_network_looks_right(width: int, vww: Report, tmp_path: Path) -> None:
    check_in_browser(vww, tmp_path, width=width)


@pytest.mark.parametrize("width", [1200, 1041, 1000])
def test_a_row_with_many_marks_is_not_cut_off(
    width: int, digits: Report, tmp_path: Path
) -> None:
    scratch = ReportedScratch(pool=0, offset=0, bytes=1_600)
    steps = tuple(
        replace(one, row_by_row=True, in_place=((0, 1),), scratch=scratch, name="layer " * 30)
        for one in digits.steps
    )
    layers = tuple(
        replace(one, macs=1_234_567_890, instructions=1_234_567_890) for one in digits.layers
    )
    write(replace(digits, steps=steps, layers=layers), tmp_path / "x.html")
    found = look(tmp_path / "x.html", width=width)
    assert not found["cut"]
    assert found["wide"] <= 0


def check_in_browser(
    made: Report, folder: Path, *, dark: bool = False, width: int = 1200
) -> None:
    """Asserts that a page has no errors and no labels over each other, and takes its picture."""
    page, picture = folder / "report.html", folder / "report.png"
    write(made, page)
    found = look(page, dark=dark, width=width)
    assert not found["errors"]
    assert not found["overlaps"]
    assert not found["outside"]
    assert not found["cut"]
    assert not found["uneven"]
    assert found["wide"] <= 0
    assert found["texts"] > 10
    bright = sum(map(int, found["background"].strip("rgb()").split(",")))
    assert bright < 200 if dark else bright > 600
    assert screenshot(page, picture, dark=dark) == []
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) > 20_000


def test_a_page_with_evil_names_runs_nothing_in_a_browser(digits: Report, tmp_path: Path) -> None:
    evil = replace(
        digits, model=replace(digits.model, name=EVIL),
        tensors=tuple(replace(one, name=EVIL * 20) for one in digits.tensors),
        steps=tuple(replace(one, name=EVIL * 20, operator=EVIL) for one in digits.steps),
    )
    write(evil, tmp_path / "x.html")
    found = look(tmp_path / "x.html")
    assert not found["errors"]
    assert "img" not in found["elements"]
    assert not found["overlaps"]
    assert found["wide"] <= 0
