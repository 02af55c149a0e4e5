"""Images of devices: what is stored comes back, on the device as here; what is damaged does not."""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from crtexport.artifact.undefined import UNDEFINED_ALLOWED
from crtexport.devices.image import (
    HEADER_SIZE,
    ImageHeader,
    Method,
    decode,
    encode,
    mapped,
    smallest,
)
from crtexport.mlf.objects import object_facts
from crtexport.support.errors import CrtExportError
from crtexport.support.resources import templates_dir
from tests.devices.programs import program
from tests.helpers import require

HERE = Path(__file__).parent
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Werror")
NULL, NO_IMAGE, BUFFER, DAMAGED = -101, -102, -104, -105


def source() -> str:
    return str(templates_dir() / "devices" / "crt_image.c")


@functools.cache
def decoder() -> ctypes.CDLL:
    """The decoder, as a library of this computer."""
    compiler = require("gcc")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "image.so"
        subprocess.run(
            [compiler, *STRICT, "-O1", "-shared", "-fPIC", source(), "-o", str(library)], check=True
        )
        loaded = ctypes.CDLL(str(library))
    loaded.crt_image_open.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p,
    ]
    loaded.crt_image_crc32c.restype = ctypes.c_uint32
    return loaded


def opened(image: bytes, room: int) -> tuple[int, bytes]:
    """Status and program, as the device's decoder has them; the image lies as flash has it, so
    that a program that is used in place is aligned."""
    flash = (ctypes.c_uint8 * (len(image) + 128))()
    place = 32 + -(ctypes.addressof(flash) + 64) % 64
    flash[place : place + len(image)] = image
    at = ctypes.addressof(flash) + place
    buffer = (ctypes.c_uint8 * (room + 64))()
    start = -ctypes.addressof(buffer) % 64
    found = ctypes.c_void_p()
    status = decoder().crt_image_open(
        at, len(image), ctypes.addressof(buffer) + start, room, ctypes.byref(found)
    )
    if status or found.value is None:
        return status, b""
    size = ImageHeader.unpack(image).original_size
    return status, ctypes.string_at(found.value, size)


programs = st.one_of(
    st.binary(max_size=300),
    st.builds(program, st.integers(0, 5000), st.integers(0, 50)),
    st.builds(lambda unit, times: unit * times, st.binary(min_size=1, max_size=40),
              st.integers(0, 2000)),
)


@settings(max_examples=60)
@given(programs, st.sampled_from(Method), st.sampled_from([1, 16, 64]))
def test_what_is_stored_comes_back(data: bytes, method: Method, align: int) -> None:
    image = encode(data, method, align=align)
    assert decode(image) == data
    assert opened(image, len(data)) == (0, data)


@settings(max_examples=60)
@given(programs, st.sampled_from(Method), st.data())
def test_every_flipped_bit_is_seen(data: bytes, method: Method, draw: st.DataObject) -> None:
    image = bytearray(encode(data, method))
    at = draw.draw(st.integers(0, len(image) - 1))
    image[at] ^= 1 << draw.draw(st.integers(0, 7))
    with pytest.raises(CrtExportError):
        decode(bytes(image))
    assert opened(bytes(image), len(data))[0] < 0


@pytest.mark.parametrize("method", Method)
def test_every_truncation_is_seen(method: Method) -> None:
    image = encode(program(900), method)
    for size in range(len(image)):
        with pytest.raises(CrtExportError):
            decode(image[:size])
        assert opened(image[:size], 900)[0] < 0


def test_a_small_or_crooked_buffer_is_refused_and_a_stored_program_needs_none() -> None:
    data = program(1000)
    image = encode(data, Method.LZ4, align=64)
    assert opened(image, 999)[0] == BUFFER
    buffer = (ctypes.c_uint8 * 2000)()
    found = ctypes.c_void_p()
    crooked = ctypes.addressof(buffer) + -ctypes.addressof(buffer) % 64 + 1
    assert decoder().crt_image_open(
        image, len(image), crooked, 1000, ctypes.byref(found)
    ) == BUFFER
    stored = encode(data, Method.STORED, align=1)
    assert decoder().crt_image_open(stored, len(stored), None, 0, ctypes.byref(found)) == 0
    assert decoder().crt_image_open(image, len(image), None, 0, ctypes.byref(found)) == NULL


def test_the_smallest_image_is_chosen() -> None:
    assert ImageHeader.unpack(smallest(program(20_000))).method is not Method.STORED
    assert ImageHeader.unpack(smallest(b"xy")).method is Method.STORED


def test_checksums_are_those_of_the_standard() -> None:
    # RFC 3720, appendix B.4, and the usual check value.
    assert decoder().crt_image_crc32c(b"123456789", 9) == 0xE3069283
    assert decoder().crt_image_crc32c(bytes(32), 32) == 0x8A9136AA
    header = ImageHeader.unpack(encode(b"123456789", Method.STORED))
    assert header.original_crc == header.stored_crc == 0xE3069283


@pytest.mark.parametrize("align", [0, 3, 8192])
def test_an_impossible_alignment_is_refused(align: int) -> None:
    with pytest.raises(CrtExportError, match="power of two"):
        encode(b"", Method.STORED, align=align)


def test_a_program_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crtexport.devices.image.MAX_SIZE", 10)
    with pytest.raises(CrtExportError, match="too large"):
        encode(bytes(11), Method.STORED, where="npu.bin")


def test_files_are_mapped(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(b"abc")
    (tmp_path / "empty").write_bytes(b"")
    with mapped(tmp_path / "p") as view:
        assert encode(view, Method.ZLIB)[HEADER_SIZE:]
    with mapped(tmp_path / "empty") as view:
        assert decode(encode(view, Method.LZ4)) == b""
    with pytest.raises(CrtExportError, match="can't be read"), mapped(tmp_path / "missing"):
        pass


IMAGES = int(os.environ.get("CRTEXPORT_MUTATED_IMAGES", "20000"))


@pytest.fixture(scope="module")
def mutating(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs ``mutate.c`` on images of one or all methods; its output."""
    compiler, folder = require("gcc"), tmp_path_factory.mktemp("mutate")
    binary = folder / "mutate"
    subprocess.run(
        [compiler, "-std=c99", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
         f"-I{templates_dir() / 'devices'}", source(), str(HERE / "mutate.c"), "-o", str(binary)],
        check=True,
    )

    def run(images: int, *methods: Method) -> str:
        files = []
        for method in methods:
            for size in (40, 700, 3000):
                files.append(folder / f"{method.name}{size}")
                files[-1].write_bytes(encode(program(size, size), method))
        done = subprocess.run(
            [str(binary), str(images), "1", *map(str, files)],
            capture_output=True, text=True, check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_a_program_whose_own_checksum_is_wrong_is_never_accepted(
    mutating: Callable[..., str]
) -> None:
    for method in Method:
        accepted, wrong = map(int, mutating(-IMAGES, method).split())
        # Deflate has bits that mean nothing, and an Adler-32 that the decoder leaves to the CRC.
        assert wrong == 0
        assert accepted == 0 or method is Method.ZLIB
    header = ImageHeader.unpack(encode(program(40, 1), Method.STORED))
    other = replace(header, original_crc=header.original_crc ^ 1).pack() + program(40, 1)
    assert opened(other, 0)[0] == DAMAGED


def test_mutated_images_touch_nothing_that_is_not_theirs(mutating: Callable[..., str]) -> None:
    images = IMAGES
    answers = mutating(images, Method.LZ4, Method.ZLIB, Method.STORED)
    counts = {int(s): int(n) for s, n in map(str.split, answers.splitlines())}
    # Every kind of answer was given, and the decoders themselves were reached often.
    assert sum(counts.values()) == images
    assert counts[DAMAGED] > images * 0.3
    assert counts[0] > images // 1000
    assert counts[NO_IMAGE] > images // 100
    assert counts[BUFFER] > images // 1000


@pytest.mark.parametrize(
    "command",
    [
        ("arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-Os"),
        ("arm-none-eabi-gcc", "-mcpu=cortex-m0", "-mthumb", "-Os"),
        ("clang", "--target=thumbv7em-none-eabihf", "-mcpu=cortex-m4", "-Os"),
    ],
    ids=" ".join,
)
def test_the_decoder_takes_less_than_2_kib(command: tuple[str, ...], tmp_path: Path) -> None:
    require(command[0])
    built = tmp_path / "image.o"
    subprocess.run(
        [*command, *STRICT, "-ffreestanding", "-c", source(), "-o", str(built)], check=True
    )
    facts = object_facts("image.o", built)
    assert facts.sections[".text"] + facts.sections[".rodata"] < 2048
    assert facts.sections[".data"] == facts.sections[".bss"] == 0
    assert set(facts.undefined) <= set(UNDEFINED_ALLOWED)
