"""The simulated device of ``templates/devices``, for programs that run without real ones."""

from __future__ import annotations

from collections.abc import Iterable

from crtexport.resources import templates_dir

HEADER = "crt_simulated.h"


def header() -> str:
    """The text of the header, which is called :data:`HEADER`."""
    return (templates_dir() / "devices" / HEADER).read_text(encoding="utf-8")


def sources(activating: Iterable[str]) -> dict[str, str]:
    """C sources, by name, with hooks for all kinds of devices whose Activate hooks are named.

    They include the header.
    """
    kinds = dict.fromkeys(
        hook.removeprefix("TVMDevice").removesuffix("Activate") for hook in activating
    )
    if not kinds:
        return {}
    hooks = "".join(f"CRT_SIMULATED_DEVICE({kind})\n" for kind in kinds)
    return {
        "crt_simulated.c": (templates_dir() / "devices" / "crt_simulated.c").read_text(
            encoding="utf-8"
        ),
        "crt_simulated_devices.c": f'#include "{HEADER}"\n\n{hooks}',
    }
