"""`python -m tests.faults.fuzz TARGET`: look for inputs that break a target, guided by what they reach in the code.

It needs atheris (`pip install atheris`). An input that reaches something new is kept in the target's corpus, one that
breaks it is kept and named, and the command ends with another exit code than 0.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path


def main() -> int:
    try:
        import atheris
    except ImportError:
        sys.exit(
            "This needs atheris: pip install atheris. Without it, the tests change the corpora at random."
        )
    with atheris.instrument_imports(include=["handlers", "runtime", "msgpack"]):
        from tests.faults.fuzz.targets import TARGETS, inputs, keep
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.fuzz", description="Fuzz parsers of foreign bytes."
    )
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=60, help="the duration")
    parser.add_argument("--size", type=int, default=512, help="the maximum size of an input in bytes")
    options = parser.parse_args()
    target, known = TARGETS[options.target], inputs(options.target)

    def run(data: bytes) -> None:
        try:
            target.run(data)
        except BaseException:
            print(f"Broken by {keep(target.name, data)}", file=sys.stderr)
            raise

    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(known):
            Path(folder, str(number)).write_bytes(data)
        child = os.fork()
        if child == 0:  # which the fuzzer ends
            limits = [f"-max_total_time={options.seconds}", f"-max_len={options.size}", "-rss_limit_mb=4096"]
            atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={folder}/", folder], run)
            atheris.Fuzz()
        _, status = os.waitpid(child, 0)
        found = {path.read_bytes() for path in Path(folder).iterdir()} - set(known)
    for data in found:
        keep(target.name, data)
    print(f"{target.name}: {len(found)} new inputs of {len(known) + len(found)}")
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
