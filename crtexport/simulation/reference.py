"""Reference runtimes, with which exported networks are compared.

A runtime lives in a process of its own (:mod:`crtexport.simulation.reference_worker`): it may need
another NumPy or another Python than crtexport, and its crash is an error message here.
:mod:`crtexport.simulation.runtimes` finds the Python for it.
"""

from __future__ import annotations

import contextlib
import io
import json
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.simulation.runtimes import (
    KINDS,
    ReferenceRuntime,
    RuntimeName,
    find_runtime,
    installation_hint,
)
from crtexport.support.errors import CrtExportError, RunFailedError, ToolMissingError

Array = npt.NDArray[np.generic]

_HEADER = struct.Struct("<cQ")
_WORKER = Path(__file__).with_name("reference_worker.py")


class TensorInfo(Struct, frozen=True):
    """One input or output of a model in the runtime; ``dtype`` is NumPy's name."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class ReferenceModel:
    """A model in a reference runtime: a ``.tflite`` file in reference kernels (BUILTIN_REF, no
    delegate) or in those of TensorFlow Lite Micro, an ``.onnx`` file in ONNX Runtime.

    ``model`` is the path of a file, or its content. With an operator that is not among reference
    kernels (CUMSUM) it runs with the usual ones, and :attr:`description` says so.

    A context manager; the process ends with it. ``runtime`` None takes tflite-runtime, else
    ai-edge-litert, for ``.tflite``. :meth:`load` puts another model into the same process, which is
    much faster than a new one. Raises ToolMissingError where the runtime isn't there or can't
    start, and CrtExportError for a model that it refuses.
    """

    def __init__(
        self, model: str | Path | bytes, *, runtime: RuntimeName | ReferenceRuntime | None = None
    ) -> None:
        if isinstance(runtime, ReferenceRuntime):
            self.runtime = runtime
        else:
            self.runtime = _first_runtime() if runtime is None else find_runtime(runtime)
        self.inputs: tuple[TensorInfo, ...] = ()
        self.outputs: tuple[TensorInfo, ...] = ()
        self.kernels = ""
        self._chatter = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close())
        try:
            self._process = _start(self.runtime, self._chatter)
            self.version = self._greet()
            self.load(model)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> ReferenceModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def description(self) -> str:
        """For example ``"tflite-runtime 2.14.0 BUILTIN_REF"``."""
        return f"{self.runtime.name} {self.version} {self.kernels}"

    @property
    def optimized(self) -> bool:
        """Returns whether the model runs in optimized kernels, for want of reference kernels."""
        return self.kernels.startswith("BUILTIN_WITHOUT")

    def load(self, model: str | Path | bytes) -> None:
        """Replaces the model by the file at this path, or with this content."""
        if isinstance(model, bytes):
            answer = json.loads(self._ask(b"C", model))
        else:
            answer = json.loads(self._load_file(Path(model)))
        self._loaded(answer)

    def add_outputs(self, names: Sequence[str], *, fused: bool = False) -> None:
        """Makes results inside of the loaded .onnx file outputs, too, behind those that there are.

        ``fused``: as they are after the runtime's optimizer, where they must be among the results.
        """
        kind = b"A" if fused else b"N"
        self._loaded(json.loads(self._ask(kind, json.dumps(list(names)).encode())))

    def optimized_file(self) -> bytes:
        """Returns the loaded .onnx file after the runtime's optimizer, which joins nodes."""
        return self._ask(b"F", b"")

    def _loaded(self, answer: dict[str, Any]) -> None:
        self.kernels = str(answer["kernels"])
        self.inputs = tuple(map(_tensor_info, answer["inputs"]))
        self.outputs = tuple(map(_tensor_info, answer["outputs"]))

    def _load_file(self, path: Path) -> bytes:
        if not path.is_file():
            raise CrtExportError("no such file", location=str(path))
        try:
            return self._ask(b"L", str(path.resolve()).encode())
        except CrtExportError as error:
            raise error.within(str(path)) from None

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Returns the outputs for ``inputs``, both in the model's order; shapes and dtypes must
        fit."""
        answer = self._ask(b"R", _pack(inputs))
        by_position = _unpack(answer)
        return [by_position[str(i)] for i in range(len(by_position))]

    def exact(self, inputs: Sequence[Array]) -> list[Array]:
        """Returns the outputs of the .onnx file at a path, computed in float64 by the package onnx.

        Raises CrtExportError where the environment hasn't the package, or that can't run the file.
        """
        by_position = _unpack(self._ask(b"X", _pack(inputs)))
        return [by_position[str(i)] for i in range(len(by_position))]

    def intermediate(self, inputs: Sequence[Array]) -> dict[int, Array]:
        """Returns all tensors after a run, by their index in the file; for finding the first
        difference.

        Constants are among them, and tensors of the runtime's own follow the file's last index.
        """
        answer = self._ask(b"I", _pack(inputs))
        return {int(index): value for index, value in _unpack(answer).items()}

    @contextlib.contextmanager
    def ended_after(self, seconds: float) -> Iterator[None]:
        """Ends the process unless what is done inside takes less than ``seconds``; then the call
        that waits for it raises RunFailedError."""
        timer = threading.Timer(seconds, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def close(self) -> None:
        """Ends the process; may be called twice."""
        process = getattr(self, "_process", None)
        if process is not None:
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
            process.kill()
            process.wait()
        self._chatter.close()

    def _greet(self) -> str:
        try:
            hello = json.loads(self._receive())
        except CrtExportError as error:
            raise ToolMissingError(
                f"the reference runtime {self.runtime.name} can't be loaded: {error.problem}",
                location=self.runtime.python,
                hint=installation_hint(self.runtime.name),
            ) from None
        return str(hello["version"])

    def _ask(self, kind: bytes, payload: bytes) -> bytes:
        stdin = self._process.stdin
        if stdin is None or stdin.closed:
            raise CrtExportError("the reference runtime was closed")
        try:
            stdin.write(_HEADER.pack(kind, len(payload)) + payload)
            stdin.flush()
        except BrokenPipeError:
            self._died()
        return self._receive()

    def _receive(self) -> bytes:
        header = self._read(_HEADER.size)
        kind, length = _HEADER.unpack(header)
        payload = self._read(length)
        if kind == b"E":
            raise CrtExportError(
                f"{self.runtime.name}: {payload.decode('utf-8', 'replace').strip()}"
            )
        return payload

    def _read(self, length: int) -> bytes:
        stdout = self._process.stdout
        data = stdout.read(length) if stdout is not None else b""
        if len(data) < length:
            self._died()
        return data

    def _died(self) -> NoReturn:
        status = self._process.wait()
        self._chatter.seek(0)
        last = self._chatter.read().decode("utf-8", "replace").strip().splitlines()[-1:]
        raise RunFailedError(
            f"{self.runtime.name} ended with status {status}" + "".join(f": {x}" for x in last),
            location=self.runtime.python,
        )


def _first_runtime() -> ReferenceRuntime:
    try:
        return find_runtime("tflite-runtime")
    except ToolMissingError as missing:
        try:
            return find_runtime("ai-edge-litert")
        except ToolMissingError:
            raise missing from None


def _start(runtime: ReferenceRuntime, chatter: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            [runtime.python, str(_WORKER), runtime.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=chatter,
        )
    except OSError as error:
        raise ToolMissingError(
            f"can't be started: {error.strerror}",
            location=runtime.python,
            hint=f"{KINDS[runtime.name].variable} names the Python for {runtime.name}",
        ) from None


def _tensor_info(entry: dict[str, Any]) -> TensorInfo:
    return TensorInfo(entry["name"], entry["dtype"], tuple(entry["shape"]))


def _pack(arrays: Sequence[Array]) -> bytes:
    packed = io.BytesIO()
    named: dict[str, Any] = {str(i): value for i, value in enumerate(arrays)}
    np.savez(packed, **named)
    return packed.getvalue()


def _unpack(payload: bytes) -> dict[str, Array]:
    with np.load(io.BytesIO(payload), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}
