"""docs/coverage.md says what the catalogue of public networks knows."""

from __future__ import annotations

from tests.catalogue.page import PAGE, page
from tests.catalogue.records import read_networks


def test_page_is_made_from_the_catalogue() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(list(read_networks().values()))


def test_nearly_all_networks_for_microcontrollers_export_and_none_differs() -> None:
    ours = [n for n in read_networks().values() if n.result and not n.elsewhere]
    refused = [network for network in ours if network.result == "refused"]
    assert len(refused) <= 0.05 * len(ours)
    assert not [network for network in ours if network.result == "differs"]
