"""Ids that a sender made so that they have one hash cost no more than ordinary ones."""

import pytest

from runtime.messages.envelope import id_keys
from runtime.versions import index as id_index
from runtime.versions import stream
from runtime.versions.index import IndexRow, candidates
from tests.unit.runtime.colliding_ids import colliding_ids, ordinary_ids
from tests.unit.runtime.diary import ponder
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import Worker, ends

KEY = bytes(range(16))
MANY = 8000
SOME = 1000
MAKERS = [ordinary_ids, colliding_ids]


class Work:
    """Counts the versions that a load looks at, and the runs that it reads for that."""

    def __init__(self, monkeypatch):
        self.looks = self.runs = 0
        read = stream._read_runs

        def counted(*arguments):
            for place in candidates(*arguments):
                self.looks += 1
                yield place

        def read_runs(stream, needed):
            self.runs += len(needed)
            return read(stream, needed)

        monkeypatch.setattr(stream, "candidates", counted)
        monkeypatch.setattr(stream, "_read_runs", read_runs)

    @property
    def done(self):
        return self.looks, self.runs


def stored(ids, key):
    return [IndexRow.of(1, 1, id_keys(ids), key)]


@pytest.mark.parametrize("make", MAKERS)
def test_with_a_key_no_version_is_looked_at_in_vain(make):
    index = stored(make(0, MANY), KEY)

    assert list(candidates(index, id_keys(make(MANY, MANY)))) == []
    assert len(list(candidates(index, id_keys(make(MANY - 7, MANY))))) == 7


def test_a_batch_over_them_does_what_one_over_others_does(monkeypatch):
    monkeypatch.setattr(id_index, "new_key", lambda: KEY)
    done = {}
    for make in MAKERS:
        table, work = memory_table(), Work(monkeypatch)
        first, second = (list(map(ponder, make(start, SOME))) for start in (0, SOME))

        assert ends(Worker(table).process(*first)) == ["processed"] * SOME
        assert ends(Worker(table).process(*second)) == ["processed"] * SOME
        assert ends(Worker(table).process(*first[:3], *second[-3:])) == ["duplicate"] * 6
        done[make] = work.done

    (looks, runs), (usual_looks, usual_runs) = done[colliding_ids], done[ordinary_ids]
    assert looks <= 2 * usual_looks
    assert runs <= 2 * usual_runs
