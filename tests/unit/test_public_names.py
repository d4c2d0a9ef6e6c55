"""What a user imports from `handlers` and `eventstore`: all that is listed is there, and every error is pickled."""

import copy
import pickle
import re
import subprocess
import sys
import types

import pytest

import eventstore
import handlers
import handlers.testing
from eventstore import errors
from handlers import HandlersError

EXAMPLES = [
    errors.TableNotFoundError("games", "memory:"),
    errors.StoreUnavailableError("what", outcome_unknown=True),
    errors.StreamNotFoundError("orders|7"),
    errors.StreamDeletedError("orders|7"),
    errors.StreamTruncatedError("orders|7", 3),
    errors.DamagedRowError("orders|7", "SS-HEAD", "is no header"),
    errors.ConcurrencyConflictError("orders|7", "its header has been changed"),
    errors.DuplicateEventError("orders|7", "id"),
    errors.IncludeConflictError("orders|7", "row", "exists already"),
    *[kind("row", 2) for kind in (errors.RowError, errors.RowExistsError, errors.RowNotFoundError)],
    errors.RowChangedError("row", 2),
    *[each("one sentence") for each in vars(handlers.errors).values() if isinstance(each, type)],
]
EXAMPLES += [
    each("one sentence")
    for each in vars(errors).values()
    if isinstance(each, type) and each not in map(type, EXAMPLES)
]


@pytest.mark.parametrize("package", [handlers, handlers.testing, eventstore])
def test_all_names_what_is_public(package):
    public = {
        name
        for name, value in vars(package).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and name != "annotations"
    }

    assert set(package.__all__) == public


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_every_error_is_public_says_its_facts_and_survives_pickling(error):
    for arrived in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (type(arrived), vars(arrived), str(arrived)) == (type(error), vars(error), str(error))

    package = handlers if isinstance(error, HandlersError) else eventstore
    assert type(error).__name__ in package.__all__
    for fact in error.args:
        assert isinstance(fact, bool) or fact is None or str(fact) in str(error)


def test_the_tree_in_the_documentation_names_every_error():
    named = set(re.findall(r"\b([A-Z]\w+Error)\b", errors.__doc__ or ""))

    assert named == {type(each).__name__ for each in EXAMPLES if not isinstance(each, HandlersError)}


def test_importing_the_event_store_loads_no_backend():
    program = (
        "import sys, eventstore;"
        "loaded = [name for name in ('azure', 'aiohttp', 'sqlite3', 'msgpack', 'asyncio') if name in sys.modules];"
        "assert not loaded, loaded"
    )

    subprocess.run([sys.executable, "-c", program], check=True)
