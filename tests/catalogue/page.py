"""docs/coverage.md, from the catalogue."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from tests.catalogue.records import Network

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coverage.md"

_LONGEST = 160
"""Characters of a cell."""

_HEAD = """\
# Public networks

What becomes of {count} `.tflite` files that others have published, older versions among them:
{summary}.

Their names and SHA-256 sums are in `tests/catalogue/networks.json`; the files are not part of this
project. With all that you have in FOLDER,

<!-- not run: the files are other people's, and trying all takes hours -->
```sh
python -m tests.catalogue FOLDER
```

tries them and writes this page: each network is exported for a Cortex-M4, and what is exported for
this computer is compared with a reference runtime on three random inputs in a row. *Exact*:
integers agree bit for bit, floats within 1e-5 of full scale. *Rounding*: floats are further apart,
because the network magnifies rounding to float32: from its evaluation in double precision both are
less than 1e-3 of full scale away, and crtexport's less than ten times as far as the reference's;
the row says how far, at the output where that is most. RAM is the workspace with what the network
keeps from one run to the next; inputs and outputs are the caller's and counted apart;
RAM is that of earlier versions: some networks take less now.
{memory}
"""

_RESULTS = {
    "exact": "exact", "rounding": "rounding:", "differs": "**differs from**",
    "exported": "exported; no reference runs it:", "refused": "refused:",
}


def page(networks: Sequence[Network]) -> str:
    """Returns the page of a catalogue, tables by repository."""
    known = [network for network in networks if network.result]
    parts = [_HEAD.format(
        count=len(known), summary=_summary(known), memory=_memory(known),
    )]
    ordered = sorted(known, key=lambda n: (n.repository.lower(), n.path, n.sha256))
    for repository, group in groupby(ordered, key=lambda network: network.repository):
        parts.append(f"## {repository}\n\n" + "\n".join([
            "| file | SHA-256 | RAM | inputs, outputs | result |", "|---|---|---:|---:|---|",
            *map(_row, group),
        ]) + "\n")
    return "\n".join(parts)


def _summary(known: Sequence[Network]) -> str:
    others = sum(network.elsewhere for network in known)
    counts = {name: sum(n.result == name for n in known) for name in _RESULTS}
    ours = len(known) - others
    done = ours - (counts["refused"] - others)
    return textwrap.fill(
        f"{others} were compiled for an accelerator or an XMOS processor; of the other {ours},"
        f" {done} export, {counts['exact']} of them exactly what a reference gives,"
        f" {counts['rounding']} but for rounding that they magnify,"
        f" {counts['exported']} without a reference that runs them"
        + (f", {counts['differs']} otherwise" if counts["differs"] else ""),
        99,
    )


def _memory(known: Sequence[Network]) -> str:
    peaks = [network.peak for network in known if network.peak]
    return (
        f"No process of the {len(peaks)} exports that were measured took more than"
        f" {max(peaks) >> 20} MB of memory."
    )


def _row(network: Network) -> str:
    there = network.result != "refused"
    memory = f"{network.workspace + network.state:,}" if there else ""
    buffers = f"{network.buffers:,}" if there else ""
    words = _RESULTS[network.result] + (
        f" ({network.words})" if network.result == "exact" else f" {network.words}"
    )
    return (
        f"| {_cell(network.path)} | `{network.sha256[:12]}` | {memory} | {buffers} |"
        f" {_cell(words)} |"
    )


def _cell(text: str) -> str:
    return " ".join(textwrap.shorten(text, _LONGEST, placeholder=" …").replace("|", "\\|").split())
