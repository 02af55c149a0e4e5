"""Prints the functions that take an input row by row, and those behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crtexport.artifact import abi
from crtexport.artifact.model import Artifact, Feed, FunctionCall
from crtexport.backends.llvm.calling import Callings
from crtexport.backends.llvm.entry import Checks, main_arity, main_symbol, workspace_symbol
from crtexport.backends.llvm.statements import StatementPrinter, internal_function
from crtexport.backends.llvm.types import ModuleText, value_type
from crtexport.kir.language import Scalar


def print_feed(
    artifact: Artifact, feed: Feed[FunctionCall], module: ModuleText, callings: Callings
) -> Iterator[str]:
    """Yields the functions of an artifact whose input is given row by row."""
    printer = _FeedPrinter(artifact, feed, module, callings)
    yield printer.row()
    yield printer.rest()
    yield printer.main()
    yield printer.begin()
    yield printer.more()
    yield printer.finish()


class _FeedPrinter:
    def __init__(
        self, artifact: Artifact, feed: Feed[FunctionCall], module: ModuleText, callings: Callings
    ) -> None:
        self._artifact, self._feed = artifact, feed
        self._module, self._callings = module, callings
        self._index = value_type(Scalar.INDEX, module.target)
        # Names of the parameters of main: inputs, outputs, the caller's memory.
        names = [f"%a{i}" for i in range(main_arity(artifact))]
        self._all, inputs = names, len(artifact.inputs)
        self._input = names[feed.index]
        self._outputs = names[inputs : inputs + len(artifact.outputs)]
        self._pools = names[inputs + len(artifact.outputs) :]
        self._row = f"{artifact.prefix}.row"
        self._rest = f"{artifact.prefix}.rest"

    # -- internal functions

    def row(self) -> str:
        """Returns the function that is called for each row, with a case for each kind of row."""
        feed = self._feed
        printer = StatementPrinter(self._artifact, self._module, self._callings, feed.index)
        printer.begin(self._turns())
        printer.cases("%segment", feed.segments, feed.counted, "%run")
        return internal_function(self._row, [*self._pools, "%row"], printer, ["%number"])

    def _turns(self) -> list[str]:
        """Returns instructions that compute, from a row's number, the case that handles it and how
        often this case has run before."""
        lines: list[str] = []
        segment, run = "%number", "0"
        for number, (repeat, row, position) in enumerate(self._feed.places()):
            period, name = len(repeat.segments), f"%turn{number}"
            lines += [
                f"  {name}.there = icmp uge i32 %number, {row}",
                f"  {name}.left = sub i32 %number, {row}",
                f"  {name}.place = urem i32 {name}.left, {period}" if repeat.times > 1
                else f"  {name}.place = add i32 {name}.left, 0",
                f"  {name}.inside = add i32 {name}.place, {position}",
                f"  {name}.count = udiv i32 {name}.left, {period}" if repeat.times > 1
                else f"  {name}.count = add i32 0, 0",
                f"  {name}.segment = select i1 {name}.there, i32 {name}.inside, i32 {segment}",
                f"  {name}.run = select i1 {name}.there, i32 {name}.count, i32 {run}",
            ]
            segment, run = f"{name}.segment", f"{name}.run"
        return [
            *lines, f"  %segment = add i32 {segment}, 0",
            f"  %run = add i32 {run}, 0" if self._index == "i32"
            else f"  %run = zext i32 {run} to {self._index}",
        ]

    def rest(self) -> str:
        """Returns the function that computes the remaining layers after all rows."""
        printer = StatementPrinter(self._artifact, self._module, self._callings)
        printer.statements([s for s in self._artifact.calls if not isinstance(s, Feed)])
        return internal_function(self._rest, [*self._outputs, *self._pools], printer)

    def main(self) -> str:
        """Returns the function behind ``run``: it handles all rows of the input, then the rest."""
        symbol = main_symbol(self._artifact)
        params = ", ".join(f"ptr noundef {name}" for name in self._all)
        return "\n".join([
            f'define internal void @{symbol}({params}) noinline #0 section ".text.{symbol}" {{',
            "  br label %first", "first:",
            *self._loop("first", self._input, "0", f"{self._feed.rows}", self._pools),
            self._call(self._rest, [*self._outputs, *self._pools]),
            *self._counters(self._pools),
            f"  store i32 {'%row.next' if self._feed.hop else 0}, ptr %counter0",
            "  store i32 0, ptr %counter1", "  ret void", "}", "",
        ])

    def _loop(
        self, entry_block: str, rows: str, number: str, count: str, pools: Sequence[str]
    ) -> list[str]:
        """Calls the function of a row for each of ``count`` rows, at least one; the blocks follow
        the one called ``entry_block``, and end in one in which ``%row.next`` is the next row's
        number."""
        feed = self._feed
        wrapped = ["  %row.next = add i32 %row.number, 1"]
        if feed.hop:
            first, end = feed.again
            wrapped = [
                "  %row.further = add i32 %row.number, 1",
                f"  %row.ends = icmp eq i32 %row.further, {end}",
                f"  %row.next = select i1 %row.ends, i32 {first}, i32 %row.further",
            ]
        return [
            "  br label %row", "row:",
            f"  %row.number = phi i32 [ {number}, %{entry_block} ], [ %row.next, %row ]",
            f"  %row.done = phi i32 [ 0, %{entry_block} ], [ %row.count, %row ]",
            f"  %row.at = phi ptr [ {rows}, %{entry_block} ], [ %row.after, %row ]",
            self._call(self._row, [*pools, "%row.at"], "%row.number"),
            f"  %row.after = getelementptr i8, ptr %row.at, {self._index} {feed.row_bytes}",
            *wrapped,
            "  %row.count = add i32 %row.done, 1",
            f"  %row.more = icmp ult i32 %row.count, {count}",
            "  br i1 %row.more, label %row, label %row.end", "row.end:",
        ]

    def _call(self, symbol: str, pointers: Sequence[str], *numbers: str) -> str:
        operands = [f"ptr noundef {p}" for p in pointers] + [f"i32 noundef {n}" for n in numbers]
        return f"  call void @{symbol}({', '.join(operands)})"

    # -- the C interface

    def begin(self) -> str:
        """Returns ``int32_t tvmgen_<m>_begin([workspace_pools])``."""
        checks = Checks()
        pools = self._loaded(checks)
        return self._function(0, [], checks, [
            *self._counters(pools), "  store i32 0, ptr %counter0",
            f"  store i32 {self._feed.rows}, ptr %counter1", f"  ret i32 {abi.OK}",
        ])

    def more(self) -> str:
        """Returns ``int32_t tvmgen_<m>_feed(rows, count[, workspace_pools])``."""
        checks = Checks()
        checks.fail_if_null("%rows")
        pools = self._loaded(checks)
        checks.lines += self._counters(pools)
        checks.lines += [
            "  %number = load i32, ptr %counter0", "  %wanted = load i32, ptr %counter1",
        ]
        if self._feed.hop:
            checks.lines.append("  %begun = or i32 %number, %wanted")
            checks.fail_if("icmp eq i32 %begun, 0", abi.ERROR_ROWS)
        else:
            checks.fail_if("icmp ugt i32 %count, %wanted", abi.ERROR_ROWS)
        return self._function(1, ["ptr noundef %rows", "i32 noundef %count"], checks, [
            "  %none = icmp eq i32 %count, 0", "  br i1 %none, label %nothing, label %some",
            "nothing:", "  ret i32 %wanted", "some:",
            *self._loop("some", "%rows", "%number", "%count", pools),
            *self._left(), "  store i32 %row.next, ptr %counter0",
            "  store i32 %left, ptr %counter1", "  ret i32 %left",
        ])

    def _left(self) -> list[str]:
        """Returns instructions for ``%left``, the rows that are missing until the next result."""
        if not self._feed.hop:
            return ["  %left = sub i32 %wanted, %count"]
        hop = self._feed.hop
        return [
            "  %missing = sub i32 %wanted, %count", "  %beyond = sub i32 %count, %wanted",
            f"  %since = urem i32 %beyond, {hop}", f"  %until = sub i32 {hop}, %since",
            "  %there = icmp eq i32 %since, 0",
            "  %next = select i1 %there, i32 0, i32 %until",
            "  %within = icmp ule i32 %count, %wanted",
            "  %left = select i1 %within, i32 %missing, i32 %next",
        ]

    def finish(self) -> str:
        """Returns ``int32_t tvmgen_<m>_finish(outputs[, workspace_pools])``."""
        checks = Checks()
        checks.fail_if_null("%outputs")
        outputs = [
            checks.load("ptr", "%outputs", "ptr", position)
            for position in range(len(self._artifact.outputs))
        ]
        for pointer in outputs:
            checks.fail_if_null(pointer)
        pools = self._loaded(checks)
        checks.lines += self._counters(pools)
        checks.lines += [
            "  %number = load i32, ptr %counter0", "  %wanted = load i32, ptr %counter1",
        ]
        checks.fail_if("icmp eq i32 %number, 0", abi.ERROR_ROWS)
        checks.fail_if("icmp ne i32 %wanted, 0", abi.ERROR_ROWS)
        after = [] if self._feed.hop else ["  store i32 0, ptr %counter0"]
        given = ["ptr noundef readonly captures(none) %outputs"]
        return self._function(2, given, checks, [
            self._call(self._rest, [*outputs, *pools]), *after, f"  ret i32 {abi.OK}",
        ])

    def _function(
        self, which: int, params: list[str], checks: Checks, lines: Sequence[str]
    ) -> str:
        symbol = abi.feed_symbols(self._artifact)[which]
        if self._pools:
            params = [*params, "ptr noundef readonly captures(none) %workspace_pools"]
        return "\n".join([
            f'define i32 @{symbol}({", ".join(params)}) #0 section ".text.{symbol}" {{',
            *checks.lines, *lines, *checks.exits(), "}", "",
        ])

    def _loaded(self, checks: Checks) -> list[str]:
        """Returns instructions that load the pointers to the caller's memory."""
        if not self._pools:
            return []
        checks.fail_if_null("%workspace_pools")
        found = [
            checks.load("ptr", "%workspace_pools", "ptr", position)
            for position in range(len(self._pools))
        ]
        for pointer in found:
            checks.fail_if_null(pointer)
        return found

    def _counters(self, pools: Sequence[str]) -> list[str]:
        """Returns instructions for ``%counter0`` and ``%counter1``, the addresses of the number of
        rows so far and of the rows that are missing, which the workspace keeps between calls."""
        own = f"@{workspace_symbol(self._artifact)}"
        base = pools[0] if abi.takes_workspace(self._artifact) else own
        offset = self._feed.counter.offset
        return [
            f"  %counter{number} = getelementptr inbounds i8, ptr {base}, "
            f"{self._index} {offset + 4 * number}"
            for number in range(2)
        ]
