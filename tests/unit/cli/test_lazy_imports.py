"""What the command line imports before it runs a command."""

import subprocess
import sys

HEAVY = ("pyspark", "py4j", "pyarrow", "pandas", "numpy", "azure", "aiohttp")


def test_heavy_packages_are_imported_only_by_the_commands_that_need_them():
    program = (
        "import sys; from runtime.cli.application import application;"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
