"""``python -m tests.onnx.nodes``: onnx's backend tests in exported code, a table by operator.

    --only WORD     tests whose name contains the word, or of this operator or suite: node,
                    pytorch-operator, pytorch-converted, simple, light (may be repeated)
    --emit llvm     objects instead of C
    --jobs N        processes at the same time
    --all           list every test that doesn't pass, with the reason
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.helpers import ROOT
from tests.onnx.suite import Case, written

FOLDER = ROOT / "build" / "onnx-1.23.2-suites"
_BATCH = 40


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def run_batch(folder: Path, emit: str, names: Sequence[str]) -> dict[str, list[str]]:
    """Returns the results of some tests; where the process crashes, each gets one of its own."""
    done = subprocess.run(
        (sys.executable, "-m", "tests.onnx.batch", str(folder), emit, *names),
        capture_output=True, text=True, check=False, cwd=ROOT,
    )
    if done.returncode == 0:
        found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
        return found
    if len(names) == 1:
        last = done.stderr.strip().splitlines()[-1:] or ["nothing said"]
        return {names[0]: ["crashed", f"status {done.returncode}: {last[0]}"]}
    half = len(names) // 2
    return run_batch(folder, emit, names[:half]) | run_batch(folder, emit, names[half:])


def chosen(cases: Iterable[Case], words: Sequence[str]) -> list[Case]:
    return [
        case for case in cases if not case.why and (
            not words or any(w.lower() in (case.name.lower(), case.operator.lower(), case.suite)
                             or w in case.name for w in words)
        )
    ]


def show(cases: Sequence[Case], results: dict[str, list[str]], *, every: bool) -> None:
    groups: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        plain = case.operator if case.suite == "node" else f"suite {case.suite}"
        groups["expanded" if case.expanded else plain].append(case)
    say(f"{'operator':32}passed/plausible")
    for name in sorted(groups):
        passed = sum(results[case.name][0] == "passed" for case in groups[name])
        mark = "" if passed == len(groups[name]) else "  *"
        say(f"{name:32}{passed}/{len(groups[name])}{mark}")
    counts: dict[str, int] = defaultdict(int)
    for case in cases:
        counts[results[case.name][0]] += 1
        if every and results[case.name][0] != "passed":
            say(f"{case.name}: {': '.join(results[case.name])}")
    say(f"{', '.join(f'{counts[kind]} {kind}' for kind in sorted(counts))} of {len(cases)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--emit", choices=("c", "llvm"), default="c")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cases = chosen(written(FOLDER), options.only)
    small = [case.name for case in cases if case.suite != "light"]
    batches = [small[i : i + _BATCH] for i in range(0, len(small), _BATCH)]
    batches += [[case.name] for case in cases if case.suite == "light"]
    results: dict[str, list[str]] = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        for found in pool.map(partial(run_batch, FOLDER, options.emit), batches):
            results |= found
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    show(cases, results, every=options.all)
    return 0 if all(kind == "passed" for kind, _ in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
