"""A plugin as another package would bring one."""

from __future__ import annotations

import re
from pathlib import Path

from tests.helpers import ROOT

PLUGIN = next(
    re.finditer(r"```python\n(.*?)```", (ROOT / "docs" / "accelerators.md").read_text(), re.DOTALL)
)[1]
"""The plugin of the documentation."""


def install(folder: Path, code: str, *, name: str = "vendor", distribution: str = "vendor") -> None:
    """Puts ``code`` into ``folder`` as the package ``distribution``, whose entry point ``name`` is
    the module's class Vendor: what pip leaves in ``site-packages``."""
    module = f"{distribution}_plugin"
    (folder / f"{module}.py").write_text(code)
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[crtexport.accelerators]\n{name} = {module}:Vendor\n"
    )
