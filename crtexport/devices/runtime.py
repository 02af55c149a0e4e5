"""Source files that firmware compiles to use device programs: a decoder of images, and
declarations."""

from __future__ import annotations

from crtexport.support.resources import templates_dir

DEVICE_HEADERS = ("crt_device.h", "crt_image.h")
DECODER_SOURCE = "crt_image.c"
ETHOS_U_HEADER = "crt_ethosu.h"


def device_file(name: str) -> bytes:
    """Returns a file of ``templates/devices``."""
    return (templates_dir() / "devices" / name).read_bytes()
