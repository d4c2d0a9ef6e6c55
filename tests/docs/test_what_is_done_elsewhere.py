"""What the pages do in a clone, a notebook, a cluster, in environments of their own: commands run as they stand."""

import json
import os
import re
import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.cli.commands.project import template
from tests.docs import pasting
from tests.docs.pasting import bare_environment, beside_the_project, marked, paste, statuses, write_files
from tests.docs.test_links_and_names import in_navigation
from tests.packaging.building import Environment, copy_tree
from tests.plugins.azurite import needed_azurite

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with the files of this project, in which the site was built."""
    tree = copy_tree(tmp_path_factory.mktemp("site"))
    paste("make docs", tree, bare_environment())
    return tree


def test_every_page_is_in_the_site(site):
    (release,) = (path.parent for path in (site / "site").glob("*/index.html"))
    built = {str(path.relative_to(release)) for path in release.rglob("*.html")}

    pages = {page.replace("README.md", "index.md").replace(".md", ".html") for page in in_navigation()}
    assert pages <= built
    assert built - pages == {"404.html"}
    # ... and what an address without a release leads to
    assert {path.name for path in (site / "site").glob("*.html")} == {"404.html", "index.html"}


def test_the_site_asks_no_other_host(site):
    pages = [path.read_text() for path in (site / "site").rglob("*.html")]
    loaded = [
        tag for page in pages for tag in re.findall(r"<(?:script|img|link|iframe|source)\b[^>]*>", page)
    ]

    assert any("iframe-worker.js" in tag for tag in loaded)
    assert [tag for tag in loaded if re.search(r"""(?:src|href)=["']?(?:https?:)?//""", tag)] == []
    # What the theme's script loads from elsewhere are drawings, where there are any, and what each browser has
    assert not any('class="mermaid"' in page for page in pages)
    for style in (site / "site").rglob("*.css"):
        assert re.findall(r"""(?:url\(|@import )["']?(?:https?:)?//[^)]+""", style.read_text()) == []


README = "README.md"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with the files of this project."""
    return copy_tree(tmp_path_factory.mktemp("pasted"))


def test_what_the_demo_leaves_is_looked_at_in_a_fresh_shell(clone):
    told = paste("make demo", clone, bare_environment())
    assert "The leader board" in told

    (looking,) = marked("docs/installation.md", "clone")
    shown = paste(looking, clone, bare_environment())

    assert all(name in shown for name in ("demo-first", "demo-second", "LeaderBoard", "published"))


def test_the_first_steps_work_in_an_empty_folder(clone):
    # Given an environment beside the clone, and nothing else
    (making,) = marked(README, "project")
    paste(making, clone, bare_environment())
    steps = clone.parent / "steps"

    # When the commands of the README are typed there
    (first,) = marked(README, "first")
    told = paste(". bin/activate\n" + first, steps, bare_environment())

    # Then they do what the text says
    assert "2 passed" in told
    assert statuses(steps / "raffle" / "outcomes") == ["duplicate"] * 3 + ["processed"] * 4
    assert [line.split()[0] for line in told.splitlines() if re.match(r" +[1-9] +m\d ", line)] == list("1234")
    assert "is published to sqlite:///" in told
    assert (steps / "raffle" / "published.db").is_file()


CLUSTER = "docs/spark-cluster.md"
FIRST = ["duplicate"] * 3 + ["processed"] * 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the files that the README shows, and those of the page on clusters."""
    made = tmp_path / "raffle"
    made.mkdir()
    pasting.write_raffle(made)
    write_files(CLUSTER, made)
    return made


def run(kind: str, folder: Path, *ports: int, page: str = CLUSTER) -> str:
    """Run the commands of a kind, with Azurite on the path and other ports, and return what they print."""
    commands, environment = "".join(marked(page, kind)), beside_the_project()
    environment["PATH"] += os.pathsep + str(Path(needed_azurite("table")).parent)
    return paste(pasting.on_free_ports(commands, *ports), folder, environment)


def test_the_sample_runs_on_azurite(folder):
    (folder / "node_modules").mkdir()
    (folder / "node_modules" / ".bin").symlink_to(Path(needed_azurite("table")).parent)

    told = run("run", folder, 10102, page="docs/azurite.md")

    assert (folder / "azurite-data").is_dir()
    assert statuses(folder / "outcomes").count("processed") > 800
    assert "ShootingRange" in told
    assert "LeaderBoard" in told


@pytest.mark.parametrize(
    ("kind", "ports", "printed", "duplicates"),
    [
        ("local", [], {"Won": None}, 0),
        ("cluster", [7077, 8080, 8081, 10102], {"Won": None}, 7),
        ("connect", [15002], {r"duplicate\W+7\b": None, r"\| *Raffle *\|": 4}, 7),
    ],
)
def test_a_driver_program_is_submitted_and_commands_run(folder, kind, ports, printed, duplicates):
    told = run(kind, folder, *ports)

    for pattern, times in printed.items():
        assert len(re.findall(pattern, told)) == times or (times is None and re.search(pattern, told))
    assert statuses(folder / "outcomes") == sorted(FIRST + ["duplicate"] * duplicates)


def test_a_wheel_is_built_for_a_platform(tmp_path):
    (command,) = marked("docs/platforms.md", "run")
    clone = copy_tree(tmp_path)

    paste(command.replace("/path/to/clone", str(clone)), clone.parent, beside_the_project())

    (wheel,) = (clone.parent / "wheels").iterdir()
    assert wheel.name.startswith("consistent_messaging-")


DAILY = "docs/how-to/daily-batch.md"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Give a new project with the script of the page, and the logs of three days."""
    made = tmp_path / "project"
    (made / "logs").mkdir(parents=True)
    for name in ("raffle.py", "consistent.toml"):
        (made / name).write_text(template("raffle")[name])
    write_files(DAILY, made)
    (made / "daily.sh").chmod(0o755)
    for day in (datetime.now(UTC), datetime.now(UTC) - timedelta(days=1), datetime(2026, 3, 1, tzinfo=UTC)):
        (made / "logs" / f"{day:%Y-%m-%d}.jsonl").write_text(template("raffle")["raffle.jsonl"])
    return made


def test_cron_runs_the_log_of_yesterday(project):
    (line,) = marked(DAILY, "cron")
    *times, command = line.split(maxsplit=5)

    paste(command.replace(r"\%", "%").replace("/srv/raffle", str(project)), project, beside_the_project())

    assert times == ["15", "2", "*", "*", "*"]
    assert statuses(project / "outcomes") == FIRST


def test_airflow_retries_only_what_may_succeed(project, monkeypatch):
    # Given Airflow's decorators, which keep the function of the task
    tasks: list[Any] = []
    failed = type("AirflowFailException", (Exception,), {})
    task = lambda **_: lambda task: partial(tasks.append, task)  # noqa: E731 - as Airflow's
    sdk = SimpleNamespace(dag=lambda **_: lambda dag: dag, task=task)
    errors = SimpleNamespace(AirflowFailException=failed)
    for name, module in {"airflow": sdk, "airflow.sdk": sdk, "airflow.sdk.exceptions": errors}.items():
        monkeypatch.setitem(sys.modules, name, module)
    for name, value in beside_the_project().items():
        monkeypatch.setenv(name, value)
    (code,) = marked(DAILY, "airflow")
    exec(code.replace("/srv/raffle", str(project)), {})
    (batch,) = tasks

    # When the logs of three days are there, have too many dead letters, and are not there
    (project / "logs" / "2026-03-02.jsonl").write_text("no message")
    batch(datetime(2026, 3, 2, tzinfo=UTC))
    with pytest.raises(failed):
        batch(datetime(2026, 3, 3, tzinfo=UTC))
    with pytest.raises(RuntimeError):
        batch(datetime(2026, 3, 4, tzinfo=UTC))

    assert statuses(project / "outcomes") == ["dead_letter", *FIRST]


EXECUTE = """
import json, sys
import nbformat
from nbclient import NotebookClient

cells = [nbformat.v4.new_code_cell(cell) for cell in json.load(open("cells.json"))]
notebook = nbformat.v4.new_notebook(cells=cells)
NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
json.dump([cell.outputs for cell in notebook.cells], open("outputs.json", "w"))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Python with a kernel for notebooks."""
    return Environment.beside(tmp_path_factory.mktemp("kernel"), "ipykernel", "nbclient")


def shown(outputs: list[dict[str, object]]) -> str:
    """Return what a cell prints and shows, what Spark says left out."""
    return json.dumps([each for each in outputs if each.get("name") != "stderr"])


def test_the_cells_of_the_notebook_do_what_the_page_says(python, tmp_path):
    folder = tmp_path / "notebook"
    folder.mkdir()
    pasting.write_raffle(folder)
    (folder / "cells.json").write_text(json.dumps(marked("docs/jupyter.md", "cell")))
    (folder / "execute.py").write_text(EXECUTE)
    environment = {**bare_environment(), "HOME": str(tmp_path)}

    paste(f"{python} execute.py", folder, environment)

    cells = json.loads((folder / "outputs.json").read_text())
    counted, batch, tried, single, _ = map(shown, cells)
    assert "4 processed, 3 duplicate" in counted
    assert "Round 0" in counted
    assert not [each for each in cells[0] if each.get("name") == "stderr"]
    assert "Won" in batch
    assert (tried.count("processed"), tried.count("duplicate")) == (4, 2)  # as text and as HTML
    assert "Won" in single
    assert "processed 5" in single
