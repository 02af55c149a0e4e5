"""Prints the functions that take an input row by row, and those behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from crtexport.artifact import abi
from crtexport.artifact.model import (
    Artifact,
    Feed,
    FunctionCall,
    StateArg,
    Statement,
    WorkspaceArg,
    every_call,
)
from crtexport.backends.c.calls import ROW, Caller
from crtexport.backends.c.functions import function, unless
from crtexport.backends.c.memory import state_name, workspace_name, workspace_pools
from crtexport.backends.c.prototypes import feed_prototypes

_INDENT = "    "


def feed_sections(
    artifact: Artifact, feed: Feed[FunctionCall], table: str | None
) -> Iterator[str]:
    """Yields the functions. ``table`` as in :func:`.entry.entry_sections`."""
    yield _row(artifact, feed, table)
    yield _rest(artifact, table)
    begin, more, finish = feed_prototypes(artifact)
    macros = artifact.prefix.upper()
    counted = "    uint32_t *counters;"
    counters = (
        f"    counters = (uint32_t *)(void *)&{workspace_name(artifact)}[{feed.counter.offset}];"
    )
    yield function(begin, *_memory(artifact, [counted]), [
        counters, "    counters[0] = 0u;", f"    counters[1] = {macros}_FEED_ROWS;",
        f"    return {macros}_OK;",
    ])
    call = _call(artifact, abi.row_symbol(artifact), feed.segments, ROW, "counters[0]")
    declared = [counted, "    const uint8_t *row = (const uint8_t *)rows;"]
    wrong = "counters[0] + counters[1] == 0u" if feed.hop else "count > counters[1]"
    yield function(more, *_memory(artifact, declared, ["rows == NULL"]), [
        counters, *unless([wrong], f"{macros}_ERROR_ROWS"),
        "    for (uint32_t i = 0u; i < count; ++i) {", f"        {call}",
        f"        row += {macros}_FEED_ROW_SIZE;", "        counters[0] += 1u;",
        *(_wrapped(feed) if feed.hop else ()), "    }",
        *(_left(feed.hop) if feed.hop else ["    counters[1] -= count;"]),
        "    return (int32_t)counters[1];",
    ])
    null = [f"outputs->{t.field} == NULL" for t in artifact.outputs]
    call = _call(artifact, abi.rest_symbol(artifact), (_rest_of(artifact),), "outputs")
    yield function(finish, *_memory(artifact, [counted], ["outputs == NULL", *null]), [
        counters,
        *unless(["counters[0] == 0u", "counters[1] != 0u"], f"{macros}_ERROR_ROWS"),
        f"    {call}", *([] if feed.hop else ["    counters[0] = 0u;"]),
        f"    return {macros}_OK;",
    ])


def whole(artifact: Artifact, feed: Feed[FunctionCall]) -> list[str]:
    """Returns the statements of the run function: all rows of the input at once."""
    begin, more, finish = abi.feed_symbols(artifact)
    pools = ["workspace_pools"] if abi.caller_pools(artifact) else []
    given = [f"inputs->{artifact.inputs[feed.index].field}", f"{artifact.prefix.upper()}_FEED_ROWS"]
    return [
        f"    (void){begin}({', '.join(pools)});", f"    (void){more}({', '.join(given + pools)});",
        f"    return {finish}({', '.join(['outputs', *pools])});",
    ]


def _wrapped(feed: Feed[FunctionCall]) -> list[str]:
    """Returns the lines that repeat the last cases of the row's function for all further rows."""
    first, like = feed.again
    return [
        f"        if (counters[0] == {like}u) {{", f"            counters[0] = {first}u;",
        "        }",
    ]


def _left(hop: int) -> list[str]:
    """Returns the lines that count ``count`` rows, and how many are missing until the next result.
    """
    after = ["        counters[1] = 0u;"] if hop == 1 else [
        f"        count = (count - counters[1]) % {hop}u;",
        f"        counters[1] = count == 0u ? 0u : {hop}u - count;",
    ]
    return [
        "    if (count <= counters[1]) {", "        counters[1] -= count;", "    } else {",
        *after, "    }",
    ]


def _rest_of(artifact: Artifact) -> tuple[Statement, ...]:
    return tuple(s for s in artifact.calls if not isinstance(s, Feed))


# ---- the caller's memory


def _memory(
    artifact: Artifact, declared: Sequence[str], conditions: Sequence[str] = ()
) -> Iterator[list[str]]:
    """Yields the lines with the declarations ``declared`` and those of pointers to the caller's
    memory, and then the lines that return an error if one of the pointers is NULL or one of
    ``conditions`` holds, and that set the pointers otherwise."""
    pools = {
        **{pool.member: pool.name for pool in workspace_pools(artifact)
           if abi.takes_workspace(artifact)},
        **({abi.STATE_POOL: state_name(artifact)} if abi.takes_state(artifact) else {}),
    }
    yield [*(f"    uint8_t *{name};" for name in pools.values()), *declared]
    null = [f"workspace_pools->{member} == NULL" for member in pools]
    null[:0] = ["workspace_pools == NULL"] if pools else []
    lines = unless([*conditions, *null], f"{artifact.prefix.upper()}_ERROR_NULL")
    lines += [
        f"    {name} = (uint8_t *)workspace_pools->{member};" for member, name in pools.items()
    ]
    yield [*lines, *_unused(artifact, pools)]


def _unused(artifact: Artifact, pools: Mapping[str, str]) -> list[str]:
    """Returns the lines ``(void)pool;`` for memory that a function doesn't use."""
    return [f"    (void){name};" for name in pools.values() if name != workspace_name(artifact)]


def _pointers(artifact: Artifact, parts: Sequence[Sequence[Statement]]) -> list[str]:
    """Returns the pointers to the caller's memory that statements use."""
    args = [arg for part in parts for call in every_call(part) for arg in call.args]
    used = {arg.pool for arg in args if isinstance(arg, WorkspaceArg)}
    names = [pool.name for pool in workspace_pools(artifact) if pool.number in used]
    found = names if abi.takes_workspace(artifact) else []
    state = abi.takes_state(artifact) and any(isinstance(arg, StateArg) for arg in args)
    return [*found, *([state_name(artifact)] if state else [])]


def _call(
    artifact: Artifact, symbol: str, parts: Sequence[Sequence[Statement]], *arguments: str
) -> str:
    return f"{symbol}({', '.join([*arguments, *_pointers(artifact, parts)])});"


def _prototype(
    artifact: Artifact, symbol: str, parts: Sequence[Sequence[Statement]], *parameters: str
) -> str:
    pointers = [f"uint8_t *{name}" for name in _pointers(artifact, parts)]
    return f"static void {symbol}({', '.join([*parameters, *pointers])})"


# ---- statements


def _row(artifact: Artifact, feed: Feed[FunctionCall], table: str | None) -> str:
    """Returns the function that is called for each row, with a case for each kind of row."""
    caller = Caller(artifact, workspace_name(artifact), state_name(artifact), table, of_row=True)
    cases: list[str] = []
    for number, segment in enumerate(feed.segments):
        if segment:
            counter = "run" if number in feed.counted else None
            cases += [
                f"    case {number}u:", *caller.statements(segment, _INDENT * 2, counter),
                "        break;",
            ]
    prototype = _prototype(
        artifact, abi.row_symbol(artifact), feed.segments, "const void *row", "uint32_t number"
    )
    text = function(prototype, _position(feed), [
        "    switch (segment) {", *cases, "    default:", "        break;", "    }",
    ])
    return f"{_comment(feed)}\n{text}"


def _comment(feed: Feed[FunctionCall]) -> str:
    lines = ["Takes a row of the input, and computes as far as it allows."]
    for repeat, row, _ in feed.places():
        if repeat.times == 1:
            continue
        period = len(repeat.segments)
        alike = "each row is computed like the one before" if period == 1 else (
            f"{period} rows are computed like the {period} before"
        )
        last = f" to {row + repeat.rows - 1}" if repeat.times else ""
        lines.append(f"From row {row} on{last}, {alike}.")
    if len(lines) == 1:
        return f"/* {lines[0]} */"
    return "\n".join(["/*", *(f" * {line}" for line in lines), " */"])


def _position(feed: Feed[FunctionCall]) -> list[str]:
    """Returns the lines that compute, from a row's number, the case that handles it (``segment``)
    and how often this case has run before (``run``)."""
    lines = [
        "    uint32_t segment = number;", "    uint32_t run = 0u;", "", "    (void)row;",
    ]
    begins = "if"
    for repeat, row, position in reversed(list(feed.places())[1:]):
        lines.append(f"    {begins} (number >= {row}u) {{")
        period = len(repeat.segments)
        if repeat.times > 1:
            place = f" + ((number - {row}u) % {period}u)" if period > 1 else ""
            lines += [
                f"        segment = {position}u{place};",
                f"        run = (number - {row}u) / {period}u;",
            ]
        else:
            lines.append(f"        segment = number - {row - position}u;")
        begins = "} else if"
    first = feed.repeats[0]
    if first.times > 1:
        period = len(first.segments)
        inside = [f"segment = number % {period}u;", f"run = number / {period}u;"]
        lines += (
            ["    } else {", *(f"        {line}" for line in inside)] if begins != "if"
            else [f"    {line}" for line in inside]
        )
    return [*lines, *(["    }"] if begins != "if" else []), "    (void)run;"]


def _rest(artifact: Artifact, table: str | None) -> str:
    """Returns the function that computes the remaining layers after all rows."""
    rest = _rest_of(artifact)
    caller = Caller(artifact, workspace_name(artifact), state_name(artifact), table)
    prototype = _prototype(
        artifact, abi.rest_symbol(artifact), (rest,),
        f"const struct {artifact.prefix}_outputs *outputs",
    )
    text = function(prototype, *([line] for line in caller.statements(rest)))
    return f"/* Computes what all rows of the input are needed for. */\n{text}"
