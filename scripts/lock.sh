#!/bin/sh
# Writes constraints.txt: the versions of all packages that extras and dependency groups bring, on every supported Python.
# Versions that still fit stay; --upgrade takes the newest of all, --upgrade-package NAME of one.
set -eu
cd "$(dirname "$0")/.."

.venv/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.8'
printf 'pip>=25.1\nsetuptools\n' |
    .venv/bin/python -m uv pip compile --quiet --universal --python-version 3.11 --no-annotate --no-header \
        --all-extras --group bench --group docs --group lint --group node --group test \
        --output-file constraints.txt "$@" - setup.cfg
sed -i '1i # The versions that the Makefile installs; setup.cfg and pyproject.toml have the ranges that work.\
# Written by scripts/lock.sh. Do not edit by hand.' constraints.txt
