"""`consistent batches` shows the ledger, says how to go on with a batch that died, and gives one up."""

import pytest

from runtime.cli.batch_command import BatchReport
from runtime.ledger.ledger import Ledger
from tests.unit.cli.stores import NOW, on_store

ON_STORE = ["--store", "sqlite:///store.db", "--table", "games"]


@pytest.fixture
def batches(store):
    """One batch that is published and one that died after its first round."""

    async def begin(table):
        ledger = Ledger(table, NOW)
        published = await ledger.begin("b1", "some input", "outcomes")
        published = await ledger.commit_round(published, 0, {"processed": 4, "duplicate": 1, "outputs": 2}, 0)
        await ledger.publish(published)
        died = await ledger.begin("b2", "other input", "outcomes")
        await ledger.commit_round(died, 0, {"processed": 1, "outputs": 1}, 1)

    on_store(store, begin)


def test_all_batches_are_listed(consistent, batches):
    document = consistent("batches", *ON_STORE, "--json").document

    assert [(each["batch_id"], each["status"], each["rounds"]) for each in document["batches"]] == [
        ("b2", "started", 1),
        ("b1", "published", 1),
    ]
    assert document["batches"][1] == {
        "batch_id": "b1",
        "number": 1,
        "status": "published",
        "algorithm": "state-based",
        "rounds": 1,
        "started_at": "2026-03-01T12:00:00Z",
        "updated_at": "2026-03-01T12:00:00Z",
        "counts": {"duplicate": 1, "outputs": 2, "processed": 4},
        "out": "outcomes",
        "input": "some input",
    }


def test_how_to_go_on_is_said_of_batches_that_have_not_ended(consistent, batches):
    said = consistent("batches", *ON_STORE)

    assert "1 duplicate, 2 outputs, 4 processed" in said.out
    assert "1 output, 1 processed" in said.out
    assert "Batch b2 has not ended" in said.out
    assert "--batch-id b2 --out outcomes" in said.out
    assert "Batch b1 has not ended" not in said.out


def test_what_is_to_be_pasted_is_quoted(consistent, store):
    records = []

    async def begin(table):
        records.append(await Ledger(table, NOW).begin("b1", "some input", "/it's mine/out"))

    on_store(store, begin)

    pasted = """--out '/it'"'"'s mine/out'"""
    assert f"--batch-id b1 {pasted} to go on" in consistent("batches", *ON_STORE).out
    report = BatchReport(records[0], was_published=False, counts=(), dead_letters=())
    assert f"  consistent outcomes {pasted} --batch-id b1" in list(report.parts())


def test_a_batch_can_be_given_up(consistent, batches):
    said = consistent("batches", *ON_STORE, "--abandon", "b2")

    assert said.code == 0
    assert "Batch b2 is abandoned" in said.out
    listed = consistent("batches", *ON_STORE, "--json").document["batches"]
    assert [each["status"] for each in listed] == ["abandoned", "published"]


def test_where_the_outcomes_of_a_batch_with_an_outbox_are_is_said_when_it_is_given_up(consistent, store):
    async def begin(table):
        ledger = Ledger(table, NOW)
        await ledger.begin("new", "some input", "outcomes", "outbox")
        begun = await ledger.begin("half", "some input", "outcomes", "outbox")
        await ledger.commit_round(begun, 0, {"processed": 1}, 1)

    on_store(store, begin)

    assert "consistent sweep" in consistent("batches", *ON_STORE, "--abandon", "new").out
    said = consistent("batches", *ON_STORE, "--abandon", "half").out.replace("\n", " ")
    assert (
        "The outcomes of its committed round are in outcomes/batch_id=half: publish them from there" in said
    )


def test_a_published_batch_cannot_be_given_up(consistent, batches):
    said = consistent("batches", *ON_STORE, "--abandon", "b1", "--json")

    assert (said.code, said.out) == (1, "")
    assert "published" in said.err


def test_the_newest_are_listed_as_many_as_one_asks_for(consistent, batches):
    assert [each["batch_id"] for each in listed(consistent, "--limit", "1")] == ["b2"]
    assert "There may be more" in consistent("batches", *ON_STORE, "--limit", "2").out
    assert "There may be more" not in consistent("batches", *ON_STORE).out


def test_what_ended_long_ago_is_forgotten_and_what_has_not_ended_is_not(consistent, batches):
    said = consistent("batches", *ON_STORE, "--prune", "--older-than", "1s")

    assert (said.code, said.out) == (0, "The ledger of games has forgotten 1 batch.\n")
    assert [each["batch_id"] for each in listed(consistent)] == ["b2"]
    again = consistent("batches", *ON_STORE, "--prune", "--older-than", "1s", "--json")
    assert again.document == {"pruned": 0, "publications": 0}


def test_what_ended_lately_is_not_forgotten(consistent, batches):
    assert consistent("batches", *ON_STORE, "--prune", "--older-than", "9999w", "--json").document == {
        "pruned": 0,
        "publications": 0,
    }
    assert len(listed(consistent)) == 2


@pytest.mark.parametrize("options", [["--prune"], ["--older-than", "30d"]])
def test_pruning_takes_an_age(consistent, batches, options):
    said = consistent("batches", *ON_STORE, *options)

    assert (said.code, said.out) == (2, "")
    assert "--prune and --older-than AGE go together" in said.err


def listed(consistent, *options):
    return consistent("batches", *ON_STORE, *options, "--json").document["batches"]


def test_a_table_without_batches_says_so(consistent, store):
    assert consistent("batches", *ON_STORE).out == "No batch was run into the table games.\n"
    assert consistent("batches", *ON_STORE, "--json").document == {"batches": []}
