"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file in ``path``'s folder that takes its place where the block ends without an
    exception, and else is gone. Raises OSError where it can't be written."""
    # The name is of no consequence. Not tempfile: its files are private to the user.
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as stream:
            yield stream
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
