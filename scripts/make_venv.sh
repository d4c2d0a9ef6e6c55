#!/bin/sh
# Makes .venv anew with the first of the given Python interpreters that is 3.11 or newer.
# Usage: scripts/make_venv.sh PYTHON...
set -eu
cd "$(dirname "$0")/.."

python=
for candidate in "$@"; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "Python 3.11 or newer is needed, which none of these is: $*; install it, or name it as in: make PYTHON=/path/to/python3.12 setup" >&2
    exit 1
fi

# Debian and Ubuntu keep the part of Python that fills a new environment with pip in a package of its own.
can_make_venv() {
    "$python" -c 'import ensurepip, venv' 2>/dev/null
}
if ! can_make_venv; then
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "Installing $package with apt-get ..."
        export DEBIAN_FRONTEND=noninteractive
        scripts/quietly.sh apt-get update -q || true
        scripts/quietly.sh apt-get install -y --no-install-recommends "$package" || true
    fi
    if ! can_make_venv; then
        echo "$python cannot make virtual environments: install $package (on Debian or Ubuntu: apt-get install $package)." >&2
        exit 1
    fi
fi

echo "Making a virtual environment in .venv with $("$python" --version) ..."
scripts/quietly.sh "$python" -m venv --clear .venv
