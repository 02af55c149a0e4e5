"""Requests to end the program, held back while files are in between two states."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_HELD = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def held() -> Iterator[Callable[[], None]]:
    """Holds Ctrl-C and SIGTERM back until the block ends, or calls what it is given.

    Python runs the handler of a signal between any two instructions, also inside of what cleans up;
    here it runs only where the program is ready for its exception. Other threads than the main one
    are not interrupted by signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    # None: a handler of another language, which can't be restored.
    handlers = {number: handler for number in _HELD
              if (handler := signal.getsignal(number)) is not None}

    def restore() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        while came:
            signal.raise_signal(came.pop())

    def hold() -> None:
        for number in handlers:
            signal.signal(number, note)

    def let_through() -> None:
        if came:
            try:
                restore()  # which raises, unless the signal is ignored
            finally:
                hold()

    try:
        hold()
        yield let_through
    finally:
        restore()
