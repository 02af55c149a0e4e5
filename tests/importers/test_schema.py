"""TensorFlow Lite's schema, class by class."""

from __future__ import annotations

import subprocess
import sys

import pytest

from crtexport.importers.tflite import schema

LATER = """
import sys
from crtexport.importers.tflite import schema
assert schema.Model.__name__ == "Model" and "tflite" not in sys.modules
import tflite
from tflite.Conv2DOptions import Conv2DOptions
assert tflite.Model is schema.Model and tflite.Conv2DOptions is schema.Conv2DOptions
assert Conv2DOptions is schema.Conv2DOptions and tflite.__version__
"""


def test_who_imports_the_package_later_gets_the_whole_of_it() -> None:
    done = subprocess.run(
        (sys.executable, "-c", LATER), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_table_of_options_has_the_code_of_its_name() -> None:
    assert schema.options_code("Conv2DOptions") == schema.BuiltinOptions.Conv2DOptions
    assert type(schema.table("Conv2DOptions")) is schema.Conv2DOptions


def test_what_the_schema_has_not_is_no_class() -> None:
    with pytest.raises(AttributeError, match="no Conv4DOptions"):
        schema.Conv4DOptions  # noqa: B018
