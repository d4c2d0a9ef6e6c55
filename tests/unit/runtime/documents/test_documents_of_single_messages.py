"""A handler has a document stored: a processor registers, prepares, commits, publishes and cleans up."""

import pytest

from eventstore import StoreUnavailableError, drive
from handlers import App, Context, DocumentReference, Handler, handles
from runtime import Output, Processor, UsageError
from runtime.algorithms.state_based.replay import Verdict, Verifier
from runtime.documents import FolderDocuments
from runtime.messages.parsing import prepare
from tests.unit.runtime.accidents import At, CrashError, crash, lose_answer
from tests.unit.runtime.documents.letters_desk import Ask, Letters, Office, app, ask, every_step, nothing
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.worker import ends


@pytest.fixture
def office(tmp_path) -> Office:
    return Office(tmp_path / "documents")


async def ignore(_: Output) -> None:
    """Publish nowhere."""


def test_a_document_is_stored_before_the_version_that_refers_to_it_and_published_after_it(office):
    steps: list[str] = []
    assert ends(office.process(ask(), before=steps.append)) == ["processed"]
    settings, loaded, registered = ["get"], ["query"], ["transact", "barrier"]
    assert steps == [*settings, *loaded, *registered, "prepare", "transact", "barrier", "publish"]

    # A duplicate announces the same document and stores none, and a verification needs no store
    steps.clear()
    assert ends(office.process(ask(), before=steps.append)) == ["duplicate"]
    assert "prepare" not in steps
    assert office.announced[0] == office.announced[1]
    office.sweep()
    office.check(messages=1)
    handler = app.handlers["Desk"]
    verified = Verifier(office.table, handler, PATIENCE).verify("r-1", [prepare(handler, "r-1", ask())])
    assert [each.verdict for each in drive(verified)] == [Verdict.MATCH]


def test_the_state_holds_the_reference_that_the_message_has(office):
    seen: list[DocumentReference | None] = []

    class Reader(Handler[Letters], name="Desk"):
        @handles(by="reader")
        def ask(self, state: Letters, message: Ask, context: Context) -> Letters:
            seen.append(state.newest)
            return state

    office.process(ask())
    drive(Processor(App(Reader), office.table, ignore).process(ask("m-2")))
    assert seen == office.announced


def test_a_killed_worker_leaves_nothing_but_what_counts_once_its_message_is_redelivered_and_it_is_swept(
    tmp_path,
):
    for when in ("before", "after"):
        killed = 0
        for office, step in every_step(tmp_path / when, crash):
            try:
                office.process(ask(), **{when: step})
            except CrashError:
                killed += 1
            assert ends(office.process(ask())) in (["processed"], ["duplicate"])
            office.sweep()
            assert set(office.files) == {letter.name for letter in office.announced}
            office.sweep(days_later=2)
            office.check(messages=1)
        assert killed == 8


def test_after_a_lost_answer_the_worker_itself_cleans_up_or_a_sweep_does(tmp_path):
    for when in ("before", "after"):
        lost = 0
        for office, step in every_step(tmp_path / when, lose_answer):
            try:
                office.process(ask(), **{when: step})
            except StoreUnavailableError:
                office.process(ask())
            lost += step.count >= step.number
            office.sweep_twice()
            office.check(messages=1)
        assert lost >= 8


@pytest.mark.parametrize("deed", ["copy", "another", "sweep"])
def test_whatever_happens_at_any_step_each_message_announces_its_document(tmp_path, deed):
    for office, step in every_step(tmp_path, lambda: None):
        deeds = {
            "copy": lambda office=office: office.worker().process(ask()),
            "another": lambda office=office: office.worker().process(ask("m-2")),
            "sweep": lambda office=office: office.worker().sweep(),
        }
        step.action = deeds[deed]
        office.process(ask(), before=step)
        if deed == "another" and step.count < step.number:
            office.process(ask("m-2"))
        office.sweep_twice()
        office.check(messages=2 if deed == "another" else 1)


def test_an_attempt_whose_document_may_arrive_late_is_registered_until_a_sweep_a_day_later(office):
    assert ends(office.process(ask(), before=At(5, lose_answer))) == ["processed"]  # the answer to `prepare`

    assert (len(office.files), len(office.registrations)) == (1, 2)
    office.sweep_twice()
    office.check(messages=1)


@pytest.mark.parametrize("accident", [crash, lose_answer])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_sweep_leaves_no_document_though_it_was_disturbed_or_an_earlier_one_died(tmp_path, accident, when):
    for office, step in every_step(tmp_path, accident):
        office.die_prepared("m-1")
        steps = (step, nothing) if when == "before" else (nothing, step)
        try:
            drive(office.worker(*steps).sweep())
        except (CrashError, StoreUnavailableError):
            office.sweep()
        assert not office.files


def test_a_sweep_forgets_an_attempt_a_day_after_it_was_given_up(office):
    office.die_prepared("m-1")
    assert len(office.registrations) == 2
    assert [office.sweep(), len(office.files), len(office.registrations)] == [1, 0, 2]
    assert [office.sweep(), len(office.registrations)] == [0, 2]
    assert [office.sweep(days_later=1), len(office.registrations)] == [0, 0]


@pytest.mark.parametrize(
    ("algorithm", "problem"),
    [
        ("outbox", "which an outbox cannot refer to"),
        ("state-based", r"Desk stores documents .* --documents"),
    ],
)
def test_without_a_store_or_with_an_outbox_the_message_is_not_handled(table, algorithm, problem):
    with pytest.raises(UsageError, match=problem):
        drive(Processor(app, table, ignore, algorithm=algorithm).process(ask()))


def test_a_folder_that_cannot_be_written_is_an_answer_that_did_not_come(tmp_path):
    (tmp_path / "file").write_text("in the way")
    documents = FolderDocuments(str(tmp_path / "file"))
    reference = DocumentReference(name="a/b.txt", sha256="", size=1, media_type="text/plain")
    with pytest.raises(StoreUnavailableError, match="document store did not answer"):
        drive(documents.prepare(reference, b"x"))
