"""A small model made by hand, and tars made by hand, for the tests of packages."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
from msgspec.structs import replace

from crtexport.artifact.model import Artifact, Constant, Interface, RegistryEntry
from crtexport.ir.types import ConstantRef, DType, Quantization, TensorType
from crtexport.kir.language import Scalar
from crtexport.mlf.contents import ModelContents, ModelInfo, PackageContents, PackageInfo
from crtexport.support.target import Target

QUANTIZED = TensorType(DType.INT8, (1, 8, 8, 1), Quantization((0.5,), (-3,)))
RESULT = TensorType(DType.FLOAT32, (1, 10))
TARGET = Target("armv7em-none-eabi", "cortex-m4", ("+dsp",), float_abi="hard")


def artifact(module: str = "digits") -> Artifact:
    return Artifact(
        module=module,
        inputs=(Interface('serving "x":0', "serving__x__0", QUANTIZED),),
        outputs=(Interface("Identity", "Identity", RESULT),),
        constants=(
            Constant("weights_0", Scalar.I8, 5, ConstantRef(5, data=b"\1\2\3\4\5"), 16, "w"),
        ),
        functions=(),
        calls=(),
        workspace_size=192,
        workspace_align=16,
        workspace_caller=False,
        system_lib=True,
        registry=(RegistryEntry(f"tvmgen_{module}_run", f"tvmgen_{module}_run_packed"),),
    )


def info(**changes: Any) -> PackageInfo:
    base: PackageInfo = {"emit": "c", "undefined": ("memcpy", "memset")}
    base.update(changes)  # type: ignore[typeddict-item]
    return base


def described(module: Artifact, graph_text: str = "graph digits\n") -> ModelContents:
    """A model as packages have it."""
    return ModelContents(
        module, "#ifndef TVMGEN_DIGITS_H_\n#define TVMGEN_DIGITS_H_\n#endif\n", graph_text,
        ModelInfo(optimize="balanced", numerics="tflite", source="digits.tflite",
                  source_sha256="0" * 64, plan={"workspace_bytes": 192}),
    )


def contents(
    model: Artifact | None = None, graph_text: str = "graph digits\n", **changes: Any
) -> PackageContents:
    """A package of C sources with one model; ``changes`` replace fields."""
    made = PackageContents(
        models=(described(model or artifact(), graph_text),),
        target=TARGET,
        board={"name": "mps2_an386", "memory": {"flash": {"origin": 0, "size": 4194304}}},
        info=info(),
        sources={"digits_lib0.c": "/* é */\n", "digits_lib1.c": "int digits_one;\n"},
        runtime_headers={"tvm/runtime/crt/module.h": b"/* */\n"},
    )
    return replace(made, **changes)


def compiled(ir: str) -> bytes:
    """An object for this computer from LLVM IR."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(codemodel="small")
    return bytes(machine.emit_object(llvm.parse_assembly(ir)))


def calling(name: str, callee: str) -> bytes:
    """An object that defines ``name``, which calls ``callee``."""
    return compiled(
        f"declare void @{callee}()\ndefine void @{name}() {{ call void @{callee}() ret void }}"
    )


def tar_of(path: Path, files: dict[str, bytes]) -> Path:
    """A tar of plain files, members named as the keys."""
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path
