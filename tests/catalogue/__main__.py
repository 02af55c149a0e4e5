"""``python -m tests.catalogue FOLDER``: tries public networks, and writes docs/coverage.md anew.

FOLDER has the files, under any names; each is found by its SHA-256 in ``networks.json``, which says
where it was published. Those of the catalogue that aren't in FOLDER keep what is known of them.

    python -m tests.catalogue FOLDER --add OWNER/NAME GIT-FOLDER

puts all .tflite files of a repository's history into FOLDER and into the catalogue first.
``--memory`` exports those whose export wasn't measured, and compares nothing. Who interrupts it
keeps what was found until then.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.catalogue.page import PAGE, page
from tests.catalogue.records import Network, read_networks, write_networks
from tests.catalogue.trial import M4, measured, tried


def main() -> None:
    """Tries all networks of the catalogue that are in a folder."""
    parser = argparse.ArgumentParser(prog="python -m tests.catalogue", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--add", nargs=2, metavar=("OWNER/NAME", "GIT-FOLDER"))
    parser.add_argument("--only", default="", help="networks whose path contains this")
    parser.add_argument("--untried", action="store_true", help="those without a result alone")
    parser.add_argument("--memory", action="store_true", help="measure exports, compare nothing")
    parser.add_argument("--jobs", type=int, default=2)
    chosen = parser.parse_args()
    networks = read_networks()
    if chosen.add is not None:
        networks |= _published(*chosen.add, chosen.folder, known=networks)
    files = {
        hashlib.sha256(file.read_bytes()).hexdigest(): file
        for file in chosen.folder.glob("**/*.tflite")
    }
    todo = sorted(
        (
            n for key, n in networks.items()
            if key in files and chosen.only in n.path and not (chosen.untried and n.result)
            and not (chosen.memory and (n.peak or n.result in ("", "refused")))
        ),
        key=lambda network: network.size,
    )
    _try_all(todo, files, networks, measured if chosen.memory else tried, chosen.jobs)
    PAGE.write_text(page(list(networks.values())), encoding="utf-8")


def _try_all(
    todo: Sequence[Network], files: Mapping[str, Path], networks: dict[str, Network],
    trial: Callable[[Network, Path, Path], Network], jobs: int,
) -> None:
    """Puts what ``trial`` finds into ``networks`` and their file."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as beside:
        board = Path(folder) / "m4.yaml"
        board.write_text(M4, encoding="utf-8")
        try:
            for number, network in enumerate(beside.map(
                lambda n: trial(n, files[n.sha256], board), todo
            )):
                networks[network.sha256] = network
                sys.stdout.write(
                    f"{number + 1}/{len(todo)} {network.path}: {network.result},"
                    f" {network.peak >> 20} MB\n"
                )
                sys.stdout.flush()
                if number % 20 == 0:
                    write_networks(networks)
        finally:
            beside.shutdown(wait=False, cancel_futures=True)
            write_networks(networks)


def _published(
    repository: str, git: str, folder: Path, known: dict[str, Network]
) -> dict[str, Network]:
    """Returns the networks of a repository's history that aren't ``known``; writes them to
    ``folder``."""

    def asked(*words: str) -> bytes:
        return subprocess.run(("git", "-C", git, *words), check=True, capture_output=True).stdout

    found: dict[str, Network] = {}
    seen: set[str] = set()
    listed = asked("rev-list", "--objects", "--all", "--missing=allow-any").decode()
    for line in listed.splitlines():
        name, _, path = line.partition(" ")
        if not path.endswith(".tflite") or name in seen:
            continue
        seen.add(name)
        content = asked("cat-file", "blob", name)
        key = hashlib.sha256(content).hexdigest()
        if content[4:8] == b"TFL3" and key not in known and key not in found:
            found[key] = Network(repository, path, key, len(content))
            (folder / f"{key}.tflite").write_bytes(content)
    return found


if __name__ == "__main__":
    main()
