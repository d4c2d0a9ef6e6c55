"""What docs/publishing.md sends to a server is sent as it stands."""

from __future__ import annotations

import shlex
from collections import Counter

import pytest

from runtime.cli import main
from tests.docs.pasting import marked
from tests.publishing.cases import records
from tests.publishing.servers import http_receiver, kafka_brokers
from tests.support.done_batches import games, make_batch

BATCH = "20260301T120000-3f9a1c"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a line of the page in a folder with the batch that it names."""
    monkeypatch.chdir(tmp_path)
    make_batch("sqlite:///store.db", tmp_path / "outcomes", games(6, 6), batch_id=BATCH)

    def run(line: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(line)[1:])
        said = capsys.readouterr()
        assert not ended.value.code, said.err
        return str(said.out)

    return run


def test_its_command_publishes_over_http(run, monkeypatch):
    monkeypatch.setenv("TOKEN", "secret")
    (command,) = marked("docs/publishing.md", "http")

    with http_receiver() as receiver:
        run(command.replace("https://example.org/events", f"{receiver.url}/k"))
        effects = receiver.counts()["effects"].values()

    assert len(effects) == 36
    assert {each["Authorization"] for each in effects} == {"secret"}


@pytest.mark.thorough
def test_its_command_publishes_to_kafka(run):
    (command,) = marked("docs/publishing.md", "kafka")

    with kafka_brokers() as brokers:
        run(command.replace("broker:9092", brokers))
        found = Counter([*records(brokers, "hits"), *records(brokers, "Missed")])

    assert found == Counter(f"g{game}-{number}" for game in range(6) for number in range(6))
