"""Every benchmark by name: `python -m benchmarks NAME [OPTIONS]`; without a name they are listed."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

BENCHMARKS = {
    "algorithms": "requests, rows and bytes of each algorithm; writes docs/algorithms.md",
    "cleanup": "truncation of tables with very many streams",
    "compare": "a batch beside other tools, on SQLite and Azurite; writes docs/performance.md",
    "epochs": "10,000 epochs of a stream without Spark; writes benchmarks/README.md",
    "growth": "how time and requests grow with sizes; draws docs/growth/",
    "guard": "what --guard costs a fold in memory",
    "postgres_bloat": "what a million updates leave behind in PostgreSQL",
    "serve": "live queues beside consumers written by hand; writes docs/performance.md",
    "shapes": "what a stream costs, by the messages that it gets; writes docs/performance.md",
    "side_effects": "consumers that store documents and are killed; writes docs/side-effects.md",
    "skew": "the workers' memory in lopsided batches",
    "stages": "the processor time of each stage of a batch",
    "startup": "how long a batch and a plain PySpark program take to start",
    "streams": "a micro-batch beside a plain one",
    "tables": "how fast versions are read as tables",
    "telemetry": "what metrics and traces cost a consumer and a task of a batch",
}
"""The modules of this package that are programs, and what each measures. `--help` shows their options."""

NODE = Path(__file__).resolve().parents[1] / ".make" / "node"


def main() -> None:
    """Run the benchmark that is named first."""
    name = sys.argv[1] if sys.argv[1:] else ""
    if name not in BENCHMARKS:
        for known, what in BENCHMARKS.items():
            sys.stdout.write(f"python -m benchmarks {known:<15} {what}\n")
        sys.exit(2 if name.strip("-") not in ("", "h", "help") else 0)
    os.environ["PATH"] = f"{NODE}{os.pathsep}{os.environ['PATH']}"  # Azurite starts the `node` on PATH
    sys.argv[:2] = [f"python -m benchmarks {name}"]
    runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
