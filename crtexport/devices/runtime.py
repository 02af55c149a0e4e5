"""What firmware compiles to use programs of devices: a decoder of images, and declarations."""

from __future__ import annotations

from crtexport.resources import templates_dir

DEVICE_HEADERS = ("crt_device.h", "crt_image.h")
DECODER_SOURCE = "crt_image.c"
ETHOS_U_HEADER = "crt_ethosu.h"


def device_file(name: str) -> bytes:
    """A file of ``templates/devices``."""
    return (templates_dir() / "devices" / name).read_bytes()
