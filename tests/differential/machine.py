"""Random programs of port operations: each step is one call, or one page of a longer reading."""

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

from eventstore import Verb
from tests.differential.changes import (
    Change,
    Changes,
    bulky_transactions,
    changes_of,
    transactions,
    wrong_changes_of,
    wrong_transactions,
)
from tests.differential.compared import ComparedTable, Reading
from tests.differential.values import (
    BULKY_KEYS,
    LAST,
    PARTITION_KEYS,
    ROW_KEYS,
    SELECTIONS,
    WRONG_KEYS,
    ends_of_ranges,
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
