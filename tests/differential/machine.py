"""Random programs of port operations: each step is one call, or one page of a longer reading."""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    multiple,
    rule,
)

from eventstore import ANY_ETAG, Verb
from tests.differential.compared import CONDITIONAL, Change, Changes, ComparedTable, Reading, Remembered
from tests.differential.values import (
    BULKY_KEYS,
    BULKY_PROPERTIES,
    LAST,
    PARTITION_KEYS,
    PROPERTIES,
    RATHER_BULKY_PROPERTIES,
    ROW_KEYS,
    SELECTIONS,
    TOO_BULKY_PROPERTIES,
    WRONG_KEYS,
    WRONG_PROPERTIES,
    Repeated,
    ends_of_ranges,
)  # fmt: skip

# A number could be an ETag of some backend by chance, so there is none.
_MADE_UP = st.sampled_from(
    [
        *("no etag at all", "-1", "1.0", "0x1", " ", "\t", "é", "\U0001d7dc"),
        *("None", "**", '"*"', "* ", "x" * 3000),
        *('W/"stale"', 'w/"stale"', '"strong"', 'W/""', 'W/"', 'W/"*"'),
        *('W/"a"b"', 'W/"a\\"b"', 'W/"a", W/"b"'),
        *("W/\"datetime'2024-01-01T00%3A00%3A00.0000000Z'\"", "x\r\nX-Injected: 1", 'W/"\n"'),
    ]
)
_ETAGS = st.one_of(st.just(Remembered.CURRENT), st.just(ANY_ETAG), st.sampled_from(Remembered), _MADE_UP)


@st.composite
def changes_of(draw: st.DrawFn, row_keys: st.SearchStrategy[str]) -> Change:
    """Draw a change that a table may refuse, but that is made as it should be."""
    verb = draw(st.sampled_from(Verb))
    properties = {} if verb is Verb.DELETE and draw(st.booleans()) else draw(PROPERTIES)
    return Change(verb, draw(row_keys), properties, draw(_ETAGS) if verb in CONDITIONAL else None)


@st.composite
def wrong_changes_of(draw: st.DrawFn, row_keys: st.SearchStrategy[str]) -> Change:
    right = draw(changes_of(row_keys))
    mistake = draw(st.sampled_from(["properties", "key", "etag"]))
    if mistake == "properties":
        return replace(right, properties=draw(WRONG_PROPERTIES))
    if mistake == "key":
        return replace(right, row_key=draw(WRONG_KEYS))
    if right.verb in CONDITIONAL:
        return replace(right, etag=draw(st.sampled_from([None, ""])))
    return replace(right, etag=draw(st.just("") | _ETAGS))


@st.composite
def transactions(draw: st.DrawFn, row_keys: st.SearchStrategy[str], min_size: int = 1) -> Changes:
    return draw(
        st.lists(changes_of(row_keys), min_size=min_size, max_size=8, unique_by=lambda change: change.row_key)
    )


@st.composite
def wrong_transactions(draw: st.DrawFn, row_keys: st.SearchStrategy[str]) -> Changes:
    """Draw a transaction with a mistake or two among what is right, or one that is wrong as a whole."""
    right = draw(transactions(row_keys, min_size=0))
    if draw(st.booleans()):
        wrong = draw(st.lists(wrong_changes_of(row_keys), min_size=1, max_size=2))
        return draw(st.permutations(right[:4] + wrong))
    return draw(st.one_of(st.just([]), st.just(right + right[:1]), _LARGE_TRANSACTIONS))


@st.composite
def bulky_transactions(draw: st.DrawFn) -> Changes:
    """Draw a transaction of rows as large as can be, or larger.

    Azurite has two limits of its own, which are kept out of: it takes a merge that makes a row too large, and
    refuses all but the insert of a row whose JSON has more than 1 MiB.
    """
    row_keys = draw(st.lists(st.sampled_from(BULKY_KEYS), min_size=1, max_size=2, unique=True))
    return [draw(_bulky_changes(row_key)) for row_key in row_keys]


@st.composite
def _bulky_changes(draw: st.DrawFn, row_key: str) -> Change:
    verb = draw(st.sampled_from([Verb.INSERT, Verb.DELETE, Verb.INSERT_OR_REPLACE, Verb.REPLACE]))
    if verb is Verb.DELETE:
        return Change(verb, row_key, {}, Remembered.CURRENT)
    if verb is Verb.INSERT:
        return Change(verb, row_key, draw(BULKY_PROPERTIES | RATHER_BULKY_PROPERTIES | TOO_BULKY_PROPERTIES))
    properties = draw(RATHER_BULKY_PROPERTIES | TOO_BULKY_PROPERTIES)
    return Change(verb, row_key, properties, Remembered.CURRENT if verb in CONDITIONAL else None)


def _many(count: int) -> Changes:
    return [Change(Verb.INSERT_OR_REPLACE, f"many-{number:03}", {"A": number}) for number in range(count)]


def _heavy(length: int) -> Changes:
    """Return a transaction of text each of whose characters is sent as six bytes."""
    text = {"A": Repeated("\x00", length)}
    return [Change(Verb.INSERT_OR_REPLACE, f"heavy-{number}", text) for number in range(60)]


# As sent, 60 texts of these lengths have a little less than the 4 MiB of a transaction, or a little more.
_LARGE_TRANSACTIONS = st.one_of(
    st.sampled_from([100, 101]).map(_many), st.integers(11_400, 11_600).map(_heavy)
)


# More rows than a page holds, or just as many; seldom, because that takes as long as the rest of a program.
FILLED = st.sampled_from([0] * 12 + [999, 1000, 1040])


class Program(RuleBasedStateMachine):
    """One program, with a table to itself and a few keys that it uses again and again."""

    partition_keys = Bundle("partition_keys")
    row_keys = Bundle("row_keys")
    readings = Bundle("readings")

    def __init__(self, table: ComparedTable) -> None:
        super().__init__()
        self.table = table

    @initialize(
        target=partition_keys,
        keys=st.lists(PARTITION_KEYS, min_size=2, max_size=3, unique=True),
        filled=FILLED,
    )
    def name_partitions(self, keys: list[str], filled: int) -> MultipleResults[str]:
        rows = [Change(Verb.INSERT, f"fill-{number:04}", {"A": number}) for number in range(filled)]
        for start in range(0, filled, 100):
            self.table.transact(keys[0], rows[start : start + 100])
        return multiple(*keys)

    @initialize(target=row_keys, keys=st.lists(ROW_KEYS, min_size=3, max_size=7, unique=True))
    def name_rows(self, keys: list[str]) -> MultipleResults[str]:
        return multiple(*keys)

    @rule(partition_key=partition_keys, changes=transactions(row_keys))
    def transact(self, partition_key: str, changes: Changes) -> None:
        self.table.transact(partition_key, changes)

    @rule(partition_key=partition_keys, changes=transactions(row_keys))
    def transact_what_fits(self, partition_key: str, changes: Changes) -> None:
        self.table.transact(partition_key, self.table.fitted(partition_key, changes))

    @rule(
        partition_key=partition_keys,
        changes=transactions(row_keys),
        other=st.one_of(changes_of(row_keys), wrong_changes_of(row_keys)),
    )
    def transact_what_fits_but_for_the_last(self, partition_key, changes, other) -> None:
        before = [change for change in changes if change.row_key != other.row_key]
        self.table.transact(partition_key, [*self.table.fitted(partition_key, before), other])

    @rule(
        partition_key=st.one_of(partition_keys, partition_keys, WRONG_KEYS),
        changes=wrong_transactions(row_keys),
    )
    def transact_what_is_wrong(self, partition_key: str, changes: Changes) -> None:
        self.table.transact(partition_key, changes)

    @rule(partition_key=partition_keys, changes=bulky_transactions())
    def transact_bulky_rows(self, partition_key: str, changes: Changes) -> None:
        self.table.transact(partition_key, changes)

    @rule(
        partition_key=st.one_of(partition_keys, WRONG_KEYS),
        row_key=st.one_of(row_keys, row_keys, ROW_KEYS, WRONG_KEYS),
    )
    def get(self, partition_key: str, row_key: str) -> None:
        self.table.get(partition_key, row_key)

    @rule(
        target=readings,
        partition_key=partition_keys,
        first=ends_of_ranges(row_keys),
        last=st.one_of(ends_of_ranges(row_keys), st.just(LAST)),
        select=SELECTIONS,
    )
    def query(self, partition_key, first, last, select) -> MultipleResults[Reading]:
        return self._read(Reading("query", (partition_key, first, last), select))

    @rule(
        target=readings,
        row_key=st.one_of(row_keys, row_keys, st.sampled_from(BULKY_KEYS)),
        first=ends_of_ranges(partition_keys),
        last=st.one_of(st.none(), ends_of_ranges(partition_keys)),
        select=SELECTIONS,
    )
    def scan(self, row_key, first, last, select) -> MultipleResults[Reading]:
        return self._read(Reading("scan", (row_key, first, last), select))

    @rule(
        target=readings,
        method=st.sampled_from(["query", "scan"]),
        key=st.one_of(partition_keys, WRONG_KEYS),
        first=st.sampled_from(["a", "~"]) | WRONG_KEYS,
        last=st.sampled_from(["a", "~"]) | WRONG_KEYS,
    )
    def read_a_wrong_range(self, method, key, first, last) -> MultipleResults[Reading]:
        return self._read(Reading(method, (key, first, last)))

    @rule(target=readings, reading=consumes(readings))
    def read_on(self, reading: Reading) -> MultipleResults[Reading]:
        return self._read(reading)

    def teardown(self) -> None:
        if not self.table.has_differed:
            self.table.end()

    def _read(self, reading: Reading) -> MultipleResults[Reading]:
        _, following = self.table.read(reading)
        return multiple(following) if following else multiple()
