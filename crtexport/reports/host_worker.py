"""Times an exported model beside other runtimes, in one process, with one thread.

This file is a plain script: another Python, without crtexport and with another NumPy, may run it.
It stays readable for Python 3.9. It reads one JSON object from stdin:

    library   the shared library with tvmgen_<module>_run
    run       that function's name
    outputs   bytes of each output
    inputs    an .npz with the inputs "0", "1", ... in the model's order
    tflite    the model for LiteRT, or null
    onnx      the same network for ONNX Runtime, or null
    rounds    how many rounds to time
    batch_ns  nanoseconds of CPU time that a batch should take at least

and writes one to stdout: ``times`` maps a subject's name to nanoseconds of CPU time per inference,
one for each round, and ``missing`` maps a runtime that can't be used to the reason. In every round
all subjects are timed, one after the other, so that other load of the computer affects them alike.
"""

# ruff: noqa: E402, PTH100, PTH120  (imports follow the path; a plain script)

import os
import sys

# A script's folder comes first on the path; no file in this one may hide a library.
_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]

import ctypes
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Subject = Callable[[], Any]


def crtexport_subject(job: dict[str, Any], inputs: list[Any]) -> Subject:
    """Returns the exported model, called through its C interface."""
    function = getattr(ctypes.CDLL(job["library"]), job["run"])
    function.restype = ctypes.c_int32
    arrays = [_aligned(array.nbytes) for array in inputs]
    for target, array in zip(arrays, inputs):
        target[:] = np.frombuffer(array.tobytes(), np.uint8)
    outputs = [_aligned(size) for size in job["outputs"]]
    structs = [_pointers(arrays), _pointers(outputs)]
    arguments = [ctypes.byref(struct) for struct in structs]

    return _Call(function, arguments, (arrays, outputs, structs))


class _Call:
    """A call that keeps the memory of its arguments alive."""

    def __init__(self, function: Any, arguments: list[Any], memory: Any) -> None:
        self.function, self.arguments, self.memory = function, arguments, memory

    def __call__(self) -> None:
        if self.function(*self.arguments):
            raise RuntimeError("the model failed")


def _aligned(nbytes: int) -> Any:
    raw = np.zeros(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


def _pointers(arrays: list[Any]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays])


def litert_subject(job: dict[str, Any], inputs: list[Any]) -> tuple[str, Subject]:
    """Returns LiteRT with its defaults: XNNPACK where it takes the network."""
    try:
        from ai_edge_litert import interpreter as module

        name = "LiteRT"
    except ImportError:
        from tflite_runtime import interpreter as module

        name = "tflite-runtime"
    interpreter = module.Interpreter(model_path=job["tflite"], num_threads=1)
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), inputs):
        interpreter.set_tensor(detail["index"], array)
    return name, interpreter.invoke


def onnx_subject(job: dict[str, Any], inputs: list[Any]) -> tuple[str, Subject]:
    """Returns ONNX Runtime on the processor, inputs and outputs bound once."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        job["onnx"], options, providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    for entry, array in zip(session.get_inputs(), inputs):
        binding.bind_cpu_input(entry.name, np.ascontiguousarray(array))
    for entry in session.get_outputs():
        binding.bind_output(entry.name)
    return "ONNX Runtime", lambda: session.run_with_iobinding(binding)


def _batch(run: Subject, count: int) -> int:
    run()
    start = time.process_time_ns()
    for _ in range(count):
        run()
    return time.process_time_ns() - start


def _fitting(run: Subject, least: int) -> int:
    """Returns how many inferences take ``least`` nanoseconds."""
    count = 1
    while _batch(run, count) < least:
        count *= 2
    return count


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Times all runtimes that are available; returns the JSON object for stdout."""
    with np.load(job["inputs"]) as archive:
        inputs = [archive[str(i)] for i in range(len(archive.files))]
    subjects = {"crtexport": crtexport_subject(job, inputs)}
    missing = {}
    for key, make in (("tflite", litert_subject), ("onnx", onnx_subject)):
        if job[key] is None:
            continue
        try:
            name, run = make(job, inputs)
            run()
            subjects[name] = run
        except Exception as error:
            missing[key] = f"{type(error).__name__}: {error}"
    counts = {name: _fitting(run, job["batch_ns"]) for name, run in subjects.items()}
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(job["rounds"]):
        for name, run in subjects.items():
            times[name].append(_batch(run, counts[name]) / counts[name])
    return {"times": times, "missing": missing}


def main() -> None:
    """Runs one job; output of the runtimes goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    json.dump(measure(json.load(sys.stdin)), answers)
    answers.close()


if __name__ == "__main__":
    main()
