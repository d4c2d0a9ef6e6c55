"""Deduplication store, tokens, sweeps and eviction."""

import json
from contextlib import suppress
from datetime import timedelta

import pytest

from eventstore import ConcurrencyConflictError, KeyRange, Operation, Table, drive
from eventstore.limits import row_bytes
from eventstore.port import Row
from eventstore.stream import split_keys
from handlers import App, Context, Handler, Message, handles
from runtime import Processor
from runtime.algorithms.outbox.algorithm import TokenBased
from runtime.algorithms.outbox.entity import MAX_OUTBOX_BYTES
from runtime.algorithms.outbox.stores import NEWEST, DeduplicationStore, Token, TokenStore, first_name, issue
from runtime.algorithms.state_based.truncation import TruncationChoices, truncate_stream
from runtime.ledger.batch import OpenBatches
from runtime.ledger.ledger import Ledger
from runtime.maintenance.statistics import TableCount, count_objects, count_rows, object_keys
from runtime.versions import limits
from samples.shooting_range import app
from tests.unit.runtime import diary
from tests.unit.runtime.accidents import At, CrashError, crash, disturbed
from tests.unit.runtime.algorithms.batches import Batch
from tests.unit.runtime.algorithms.game import GAME, SHOT, assert_one_hit, begun, calls, fire, shoot, start
from tests.unit.runtime.algorithms.world import ALGORITHMS, WITH_OUTBOX, World
from tests.unit.runtime.bells import Rang, Rings, rang
from tests.unit.runtime.diary import write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import memory_table, rows
from tests.unit.runtime.worker import DAY, NOW, SECOND, ToldClock, Worker, ends

every_outbox = pytest.mark.parametrize("algorithm", WITH_OUTBOX)


# Tokens: created once for what counts, under fresh ids, refused when too late, and none left over.


@pytest.fixture
def store() -> TokenStore:
    return TokenStore(memory_table())


class Tolled(Message):
    tower: str


class Toll(Handler[Rings], name="Bell"):
    @handles(by="tower")
    def rang(self, state: Rings, message: Rang, context: Context) -> Rings:
        for _ in range(60):
            context.publish(Tolled(tower=message.tower))
        return Rings(rings=state.rings + 1)


class Ear(Handler[Rings]):
    @handles(by="tower")
    def heard(self, state: Rings, message: Tolled, context: Context) -> Rings:
        return Rings(rings=state.rings + 1)


class OtherEar(Ear):
    """Takes the same messages."""


def test_no_tokens_are_created_once_the_parent_is_gone(store):
    # This is what fences a slow attempt: others may have cleaned up already, and nobody would delete its tokens.
    parent, late = (
        Token("chain", "first", "Bell"),
        [Token("chain", f"late-{index}", "Ear") for index in (0, 1)],
    )
    drive(store.issue([parent]))
    drive(store.delete(parent))

    with pytest.raises(ConcurrencyConflictError):
        drive(store.create(parent, late))

    assert not any(drive(store.exists(token)) for token in late)


def test_a_message_that_is_issued_twice_before_it_is_sent_has_one_token(store):
    message = write("a", headers={"trace": "7"})
    first = drive(issue(store, message, ["Diary", "Other"]))
    token = Token.named((first.headers or {})["token"], "Diary")
    drive(store.delete(token))

    again = drive(issue(store, message, ["Diary", "Other"]))

    assert again == first
    assert set(first.headers or {}) == {"trace", "token"}
    assert not drive(store.exists(token))


def test_a_message_for_several_handlers_is_processed_by_each_of_them_once():
    world = World("tokens", App(Toll, Ear, OtherEar))

    world.deliver(*rang("m"))
    world.consume()
    for output in list(world.published):
        assert ends(world.deliver(output.envelope())) == ["duplicate", "duplicate"]

    assert [world.state(name, "east")["rings"] for name in ("Bell", "Ear", "OtherEar")] == [1, 60, 60]
    assert world.garbage() == []


@pytest.mark.parametrize("crashed", range(1, 10))
def test_copies_with_different_tokens_of_a_message_that_is_not_finished_leave_none(crashed):
    # Given a message that is not finished, and a copy that somebody gave another token
    world = begun("tokens")
    with pytest.raises(CrashError):
        shoot(world, before=At(calls("tokens").index("publish") + 1, crash))
    drive(TokenStore(world.other).issue([Token("second", "other", "ShootingRange")]))
    second = SHOT._replace(headers={"token": "second/other"})

    # When that one is processed, with a crash, and both are redelivered
    with pytest.raises(CrashError):
        drive(world.process(second, before=At(crashed, crash)))
    assert ends(world.deliver(second, SHOT)) == ["duplicate", "duplicate"]
    world.consume()

    # Then the message has its effect once
    assert_one_hit(world)


def die_uncommitted(world: World) -> None:
    """Deliver the shot to a worker that dies once it has created tokens."""
    commit = At(2, crash)
    with pytest.raises(CrashError):
        shoot(world, before=lambda call: commit() if call == "states transact" else None)


def test_when_attempts_fill_the_row_an_entry_keeps_the_newest_and_their_tokens(monkeypatch):
    # Given a message with an entry, and no room for the ids of further attempts
    world = begun("tokens")
    die_uncommitted(world)
    with monkeypatch.context() as patch:
        patch.setattr(TokenBased, "growth", 2 * MAX_OUTBOX_BYTES)

        for _ in range(9):
            die_uncommitted(world)
        assert ends(World("tokens").deliver(start(1))) == ["state_too_large"]

    tokens = [each for each in world.garbage() if each.startswith("tokens.")]
    assert len(tokens) == 1 + NEWEST + 1  # the token of the shot, and those of its output
    assert ends(world.deliver(SHOT)) == ["duplicate"]
    world.consume()
    assert_one_hit(world)


@pytest.mark.parametrize("others", range(NEWEST + 3))
@pytest.mark.parametrize(
    ("call", "number", "growth"),
    [("other transact", 1, 0), ("states transact", 2, 0), ("states transact", 2, 2 * MAX_OUTBOX_BYTES)],
)
def test_an_attempt_that_later_ones_supersede_does_not_commit(call, number, growth, others, monkeypatch):
    world = begun("tokens")

    async def wait() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(TokenBased, "growth", growth)
            for _ in range(others):
                die_uncommitted(world)

    # When later attempts die before one creates its tokens, or before it commits them
    waits = At(number, wait)
    shoot(world, before=lambda name: waits() if name == call else None)

    # Then the message has its effect once, and no tokens are left
    world.consume()
    assert_one_hit(world)


@pytest.mark.parametrize("name", ["nonsense", "/", "a/", "a b/c", "a/b/c", "x" * 600 + "/first"])
def test_a_token_whose_name_is_none_is_taken_for_no_token(name):
    assert ends(World("tokens").deliver(SHOT._replace(headers={"token": name}))) == ["invalid_envelope"]


@pytest.mark.parametrize("victim", ["victim", "0", "21260105-1bf4-4ac1-8aeb-9020ca4b6fb4"])
def test_a_message_cannot_take_the_token_of_another_one(victim):
    # Given a message with its token, and another one under an id of its own that names the same token
    world = World("tokens")
    drive(issue(TokenStore(world.other), SHOT._replace(message_id=victim), ["ShootingRange"]))
    hostile = SHOT._replace(message_id="hostile", headers={"token": first_name(victim)})

    (outcome,) = world.deliver(hostile)

    assert ends([outcome]) == ["invalid_envelope"]
    assert drive(TokenStore(world.other).exists(Token.named(first_name(victim), "ShootingRange")))


def test_what_a_message_from_outside_names_as_its_token_is_replaced(store):
    issued = drive(issue(store, write("a", headers={"token": first_name("victim")}), ["Diary"]))

    assert issued.headers == {"token": first_name("a")}


# Ids that are kept by age are forgotten by age: what they protected against can happen then.


WEEK = timedelta(days=7)
BY_AGE = ["outbox", "deduplication-store"]


def evict(world: World, older_than: timedelta = WEEK) -> int:
    return drive(world.worker().evict(older_than))


@pytest.mark.parametrize("algorithm", BY_AGE)
def test_a_duplicate_that_comes_after_its_eviction_is_processed_again_and_younger_ones_are_kept(algorithm):
    # Given a message that was processed a week ago, and is forgotten
    world = World(algorithm, diary.app)
    world.deliver(write("old"))
    world.clock.now += 7 * DAY
    world.deliver(write("young"))
    assert evict(world) == 1

    # When the copies come
    outcomes = world.deliver(write("young"), write("old"))

    # Then it has its effect twice: this is what a longer period makes less likely, and no period excludes
    assert ends(outcomes) == ["duplicate", "processed"]
    assert world.state("Diary", diary.DIARY)["lines"] == ["old", "young", "old"]


@pytest.mark.parametrize("algorithm", BY_AGE)
@pytest.mark.parametrize("in_batch", [False, True])
def test_what_is_not_published_yet_is_kept_however_old_it_is(algorithm, in_batch):
    batch = Batch(World(algorithm, diary.app))
    if in_batch:
        batch.first_pass(write("a"))
    else:
        with pytest.raises(CrashError):
            drive(batch.world.process(write("a"), before=die_at_publish))
    batch.world.clock.now += 7 * DAY

    assert evict(batch.world, timedelta()) == 0
    outcomes = batch.run(write("a"))
    assert ends(outcomes) == ["processed" if in_batch else "duplicate"]
    assert len(outcomes[0].outputs) == 1


@pytest.mark.parametrize("algorithm", [each for each in ALGORITHMS if each not in BY_AGE])
def test_what_is_not_kept_by_age_is_not_forgotten(algorithm):
    world = World(algorithm, diary.app)
    world.deliver(write("a"))
    world.clock.now += 7 * DAY

    assert evict(world) == 0
    assert ends(world.deliver(write("a"))) == ["duplicate"]


def test_an_id_that_a_sweep_adds_anew_meanwhile_is_kept():
    # Given a message whose worker died before the entity was told that it is finished
    world = World("deduplication-store", diary.app)
    with pytest.raises(CrashError):
        drive(world.process(write("a"), after=lambda call: crash() if call == "other transact" else None))
    world.clock.now += 7 * DAY

    # When a sweep finishes it just before its id is evicted
    sweep = world.worker().sweep
    evicting = world.worker(lambda call: sweep() if call == "other transact" else None)
    assert drive(evicting.evict(WEEK)) == 0

    # Then its copies are known
    assert ends(world.deliver(write("a"))) == ["duplicate"]


def test_ids_beside_one_that_is_gone_meanwhile_are_evicted():
    table = memory_table()
    drive(DeduplicationStore(table, ToldClock()).add("e", dict.fromkeys("abc", bytes(16))))
    overtaken = disturbed(table, lambda: table.transact("e", [Operation.delete("ID-T-a")]))

    assert drive(DeduplicationStore(overtaken).evict("e", NOW)) == 2
    assert rows(table) == {}


# The sweeper finishes messages whose worker died, when they are not redelivered.


def sweep(world: World, **disturbances) -> int:
    return drive(world.worker(**disturbances).sweep())


def after_each_crash(algorithm):
    """Give a world for each call after which a worker can die with the state changed."""
    for number in range(1, len(calls(algorithm)) + 1):
        world = begun(algorithm)
        with pytest.raises(CrashError):
            shoot(world, after=At(number, crash))
        if world.state("ShootingRange", str(GAME))["number_of_attempts"] == 1:
            yield world


@every_outbox
@pytest.mark.parametrize("others", [0, 12])
def test_a_sweep_finishes_what_a_crash_or_another_sweep_left(algorithm, others):
    for world in after_each_crash(algorithm):
        for number in range(1, others):
            with suppress(CrashError):
                sweep(world, after=At(number, crash))
        sweep(world)
        world.consume()
        assert_one_hit(world)


@every_outbox
def test_a_sweep_tells_how_many_messages_it_finished_and_costs_one_scan_then(algorithm):
    world = World(algorithm, diary.app)
    for number, name in enumerate(["d-1", "d-2", "d-2"]):
        with pytest.raises(CrashError):
            drive(world.process(write("line", str(number), name), before=die_at_publish))

    assert sweep(world) == 3
    world.calls.clear()
    assert sweep(world) == 0
    assert world.calls == ["states scan"]
    assert len(world.published) == 3


@every_outbox
def test_a_sweep_leaves_alone_what_was_begun_a_moment_ago(algorithm):
    world, minute = begun(algorithm), timedelta(minutes=1)
    with pytest.raises(CrashError):
        shoot(world, before=die_at_publish)

    world.clock.now += 30 * SECOND
    assert drive(world.worker().sweep(minute)) == 0
    world.clock.now += 30 * SECOND
    assert drive(world.worker().sweep(minute)) == 1


def die_at_publish(call: str) -> None:
    if call == "publish":
        crash()


# Counts of a table: what stands in it is counted once, whole or range by range.


OLD = NOW - 10 * DAY


async def publish(_: object) -> None:
    """Publish nothing."""


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    """Give a table with streams, entities, ids of messages, a ledger, and a stream of somebody else."""
    monkeypatch.setattr(limits, "MAX_SEGMENT_VERSIONS", 0)  # each version is a run of its own
    table = memory_table()
    for number in range(4):
        for name in ("a", "b"):
            worker = Worker(table, clock=ToldClock(OLD + number), batch="done", business_id=name)
            worker.process(write(f"{name}{number}", diary=name, enqueued_at=OLD + number))
    Worker(table, clock=ToldClock(OLD + 9), business_id="c").process(write("x", diary="c"))
    rules = TruncationChoices(keep_last=2).as_of(NOW, OpenBatches())
    drive(truncate_stream(table, "Diary-a", rules, PATIENCE))
    processor = Processor(app, table, publish, algorithm="deduplication-store")
    for message in (start(1, 40), fire(2, 40)):
        drive(processor.process(message))
    drive(Ledger(table, ToldClock()).begin("night", "", ""))
    drive(table.transact("Order-7", [Operation.insert("SS-HEAD", {"Version": 1})]))
    drive(table.transact("Order-7", [Operation.insert("SS-SE-0000000001", {"Version": 1})]))
    drive(table.transact("deliveries.a-b", [Operation.insert("ID-T-1", {"Value": 1})]))
    return table


def test_each_handler_has_its_objects_versions_rows_and_bytes(table):
    count = drive(count_rows(table))

    diary, shooting_range = count.handlers
    assert (diary.handler, diary.algorithm, diary.objects) == ("Diary", "state-based", 3)
    assert (diary.versions, diary.kept, diary.horizon, diary.oldest) == (9, 7, OLD + 1, OLD)
    assert (shooting_range.handler, shooting_range.algorithm) == ("ShootingRange", "deduplication-store")
    assert (shooting_range.objects, shooting_range.versions, shooting_range.kept) == (1, 2, 1)
    sizes = {key: row_bytes(Row(*key, "", properties)) for key, properties in rows(table).items()}
    for each, name in ((diary, "Diary-"), (shooting_range, "ShootingRange-")):
        own = [size for (partition, _), size in sizes.items() if partition.startswith(name)]
        assert (each.rows, each.bytes) == (len(own), sum(own))
    assert diary.rows + shooting_range.rows + count.others.rows == len(sizes)
    assert diary.bytes + shooting_range.bytes + count.others.bytes == sum(sizes.values())


def test_the_oldest_version_of_a_handler_is_one_that_is_kept(table):
    # Given that the other diary, which was not cut, has the oldest version
    assert drive(count_rows(table)).handlers[0].oldest == OLD
    # When it is cut too, and the deletion of its rows broke off
    rules = TruncationChoices(keep_last=1).as_of(NOW, OpenBatches())
    drive(truncate_stream(table, "Diary-b", rules, PATIENCE))
    (header,) = [values for key, values in rows(table).items() if key == ("Diary-b", "SS-HEAD")]
    run = next(values for key, values in rows(table).items() if key[1] == "SS-SE-0000000004")
    drive(table.transact("Diary-b", [Operation.insert("SS-SE-0000000001", run)]))
    assert header["FirstVersion"] > 1

    # Then what is left counts as a row, and its versions as cut
    diary = drive(count_rows(table)).handlers[0]
    assert diary.oldest == OLD + 2
    assert diary.rows == sum(partition.startswith("Diary-") for partition, _ in rows(table))


def test_objects_alone_are_counted_from_their_headers(table):
    quick, whole = drive(count_objects(table)), drive(count_rows(table))

    assert quick.handlers == [each._replace(oldest=None, rows=0, bytes=0) for each in whole.handlers]


def test_waiting_letters_are_counted():
    table = memory_table()
    Worker(table, business_id="c").process(write("x", diary="c"))
    drive(table.transact("Diary-c", [Operation.merge("SS-HEAD", {"Letters": 3})]))

    assert [drive(count(table)).handlers[0].letters for count in (count_objects, count_rows)] == [3, 3]


@pytest.mark.parametrize("count", [count_objects, count_rows])
@pytest.mark.parametrize("parts", [1, 2, 3, 8])
def test_ranges_add_up_to_the_whole(table, count, parts):
    whole, sum_of_all = drive(count(table)), TableCount()

    async def ranges() -> list[KeyRange]:
        return await split_keys(object_keys(table), parts)

    for keys in drive(ranges()):
        sum_of_all.merge(json.loads(json.dumps(drive(count(table, keys)).document())))

    assert sorted(sum_of_all.document()) == sorted(whole.document())
