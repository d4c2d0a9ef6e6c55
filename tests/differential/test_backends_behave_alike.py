"""Random programs give the same results on every backend."""

import asyncio
import os
from itertools import count

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from eventstore import connect
from tests.differential.compared import ComparedTable
from tests.differential.machine import Program

PROGRAMS = int(os.environ.get("DIFFERENTIAL_PROGRAMS", min(settings().max_examples, 20)))
"""How many programs to try at random, about seven in a second."""

SETTINGS = settings(
    max_examples=PROGRAMS,
    stateful_step_count=25,
    deadline=None,
    print_blob=True,
    report_multiple_bugs=False,
    phases=[Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.timeout(100 + PROGRAMS)
def test_the_backends_behave_alike(azurite_url, postgresql_url, tmp_path):
    urls = ("memory:", f"sqlite:///{tmp_path}/store.db", azurite_url, postgresql_url)
    numbers = count(1)
    with asyncio.Runner() as runner:
        stores = [connect(url) for url in urls]  # in the order of BACKENDS

        def program() -> Program:
            name = f"program{next(numbers)}"
            return Program(ComparedTable([runner.run(store.table(name)) for store in stores], runner))

        try:
            run_state_machine_as_test(program, settings=SETTINGS)  # type: ignore[arg-type]  # any callable will do
        finally:
            for store in stores:
                runner.run(store.close())
