"""The program of firmware that ``make`` builds: it runs the models on recorded inputs."""

from __future__ import annotations

from crtexport.firmware.board_schema import Board
from crtexport.firmware.parts import FirmwareParts
from crtexport.firmware.project import rendered
from crtexport.integrations.test_vector import Recorded, test_context
from crtexport.version import __version__

_TEMPLATES = ("common/crt_test.c.j2", "common/crt_test.h.j2", "make/main.c.j2")


def test_program(parts: FirmwareParts, board: Board, recorded: Recorded) -> dict[str, bytes]:
    """Returns the program's C files by name, as :func:`crtexport.firmware.run.build` takes them.

    It prints for each model whether its outputs are the recorded ones, and PASS or FAIL at the end.
    Inputs and recorded outputs are in the section of test inputs.
    """
    context = {
        **test_context(parts, recorded), "board": board.name, "firmware": True,
        "made_by": f"crtexport {__version__}",
    }
    return rendered((f"integrations/{name}" for name in _TEMPLATES), context)
