"""Builds the parts in C, and leaves out what cannot be built or is not wanted; all else is in setup.cfg."""

import os

from setuptools import Extension, setup

NATIVE = (
    "runtime.algorithms.state_based._chain",
    "runtime.messages._digests",
    "runtime.supervision._calls",
)

is_pure = os.environ.get("CONSISTENT_MESSAGING_PURE_PYTHON", "0") not in {"", "0"}
setup(
    ext_modules=[
        Extension(name, [f"{name.replace('.', '/')}.c"], optional=True)
        for name in (() if is_pure else NATIVE)
    ]
)
