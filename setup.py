"""Builds the parts in C, and leaves them out where there is no compiler; all else is in setup.cfg."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(name, [f"{name.replace('.', '/')}.c"], optional=True)
        for name in ("runtime.algorithms.state_based._chain", "runtime.messages._digests")
    ]
)
