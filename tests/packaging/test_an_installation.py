"""The wheel, installed by pip into an environment of its own: once without extras, then for the command line."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.building import REPOSITORY, Environment

pytestmark = pytest.mark.thorough

AUTHORS_CODE = """
from typing import assert_type

from handlers import App, Context, Handler, Message, State, handles
from handlers.testing import HandlerSpec
from runtime import Envelope, Outcome, Processor
from samples.shooting_range import app as shooting_range


class Rang(Message):
    tower: str


class Rings(State):
    count: int = 0


class Bell(Handler[Rings]):
    @handles(by="tower")
    def rang(self, state: Rings, message: Rang, context: Context) -> Rings:
        return state.model_copy(update={"count": state.count + 1})


app = App(Bell)


async def ring(processor: Processor) -> None:
    assert_type(await processor.process(Envelope.of("m-1", "Rang", "{}")), list[Outcome])


def test_it_rings() -> None:
    HandlerSpec(Bell).given(Rang(tower="east")).when(Rang(tower="east")).then(state=Rings(count=2))
"""
MISTAKE = "\napp.routes(7)\n"


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    made = Environment(tmp_path_factory.mktemp("environment"))
    made.install(str(wheel))
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with the code of somebody who writes handlers."""
    (tmp_path / "bells.py").write_text(AUTHORS_CODE)
    return tmp_path


def test_the_core_brings_nine_packages(environment):
    assert environment.packages() - {"pip", "setuptools"} == {
        "annotated-types", "consistent-messaging", "msgpack", "msgspec", "pydantic", "pydantic-core",
        "typing-extensions", "typing-inspection", "zstandard",
    }  # fmt: skip


def test_handlers_are_written_tested_and_run_on_it(environment, folder):
    environment.run(environment.python, "-c", "import bells; bells.test_it_rings()", folder=folder)
    programs = REPOSITORY / "tests" / "packaging" / "programs.py"
    (folder / "programs.py").write_text(programs.read_text())

    done = environment.run(
        environment.python, "-c", "from programs import *; consume('sqlite:///games.db')", folder=folder
    )

    assert done.split() == ["processed", "Hit", "processed", "Hit", "duplicate"]


def test_mypy_finds_its_types(environment, folder):
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(environment.python)]

    environment.run(*mypy, "bells.py", folder=folder)
    (folder / "wrong.py").write_text(AUTHORS_CODE + MISTAKE)
    done = subprocess.run([*mypy, "wrong.py"], cwd=folder, capture_output=True, text=True, check=False)

    assert 'Argument 1 to "routes" of "App" has incompatible type "int"' in done.stdout


def test_the_command_line_checks_handlers_with_its_extra(environment, folder, wheel):
    environment.install(f"{wheel}[sql]")

    done = environment.run(environment.consistent, "lint", "bells.py", folder=folder)
    assert done == "Nothing found in 1 handler, 1 file.\n"


def test_the_hook_for_pre_commit_brings_what_it_needs(tree, tmp_path, folder):
    hook = (REPOSITORY / ".pre-commit-hooks.yaml").read_text()
    (more,) = re.findall(r"^  additional_dependencies: (.*)$", hook, re.MULTILINE)
    environment = Environment(tmp_path / "hook")

    # When it is installed as pre-commit does, from a clone
    environment.install(".", *json.loads(more), folder=tree)

    assert "pyspark" not in environment.packages()
    assert environment.run(environment.consistent, "lint", "bells.py", folder=folder).startswith(
        "Nothing found"
    )
