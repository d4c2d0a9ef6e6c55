"""Run commands of the command line one after another in one process, on one JVM: starting it takes longest.

Reads a JSON list of argument lists, and prints a JSON list of exit codes and of what each command said.
"""

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway

from runtime.cli import main
from runtime.spark.sessions import session


def running_gateway(*arguments, **options):
    """Return the JVM that is there already, and start one otherwise."""
    return SparkContext._gateway or launch_gateway(*arguments, **options)


def call(arguments):
    """Return the exit code of a command, and what it said."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        try:
            main(arguments)
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, said.getvalue()


if __name__ == "__main__":
    with patch.object(session, "launch_gateway", running_gateway):
        results = [call(arguments) for arguments in json.load(sys.stdin)]
    print(json.dumps(results))
