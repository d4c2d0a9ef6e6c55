import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

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
def test_the_backends_behave_alike(backends):
    run_state_machine_as_test(
        lambda: Program(backends.new_table()),  # type: ignore[arg-type]  # any callable will do
        settings=SETTINGS,
    )
