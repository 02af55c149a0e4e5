"""The catalogue: networks, where they were published, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

FILE = Path(__file__).with_name("networks.json")

ELSEWHERE = ("Edge TPU", "Ethos-U", "'XC_", "string")
"""Words of the errors for networks that aren't for a microcontroller's usual processor: those that
were compiled for an accelerator or for XMOS's processors, and those on texts."""


class Network(Struct, frozen=True, omit_defaults=True):
    """A public ``.tflite`` file.

    ``result``: "exact" (integers bit for bit, floats within 1e-5 of full scale), "rounding" (floats
    further apart, but no further from double precision than rounding brings the reference),
    "differs", "exported" (no reference runtime runs it), "refused", or "" where it wasn't tried.
    ``words``: the reference that it was compared with, or what the error said. ``workspace``,
    ``state`` and ``buffers`` (inputs and outputs): bytes of RAM on a Cortex-M4. ``peak``: bytes of
    memory that the largest process of the export took.
    """

    repository: str
    path: str
    sha256: str
    size: int
    result: str = ""
    words: str = ""
    numerics: str = ""
    workspace: int = 0
    state: int = 0
    buffers: int = 0
    peak: int = 0

    @property
    def elsewhere(self) -> bool:
        """Returns whether it is for another processor than a microcontroller's."""
        return self.result == "refused" and any(word in self.words for word in ELSEWHERE)


def read_networks() -> dict[str, Network]:
    """Returns the catalogue by SHA-256."""
    listed = msgspec.json.decode(FILE.read_bytes(), type=list[Network])
    return {network.sha256: network for network in listed}


def write_networks(networks: Mapping[str, Network]) -> None:
    """Writes the catalogue, a network per line."""
    ordered = sorted(networks.values(), key=lambda n: (n.repository.lower(), n.path, n.sha256))
    lines = ",\n".join(msgspec.json.encode(network).decode() for network in ordered)
    FILE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
