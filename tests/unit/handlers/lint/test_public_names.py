"""What is imported from `handlers.lint`, and that it crosses process borders."""

import pickle
import types
from pathlib import Path

import handlers.lint
from handlers.lint import RULES, Finding, Report, SourceError, Target

FINDING = Finding(Path("orders.py"), 3, 5, "CM101", "time.time", ("Orders.paid",))


def test_all_names_what_is_public():
    public = {
        name
        for name, value in vars(handlers.lint).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }

    assert set(handlers.lint.__all__) == public


def test_values_and_errors_survive_pickling():
    for value in (FINDING, Report((FINDING,), (), 1, 1), Target(Path("orders.py")), RULES["CM101"]):
        assert pickle.loads(pickle.dumps(value)) == value
    assert str(pickle.loads(pickle.dumps(SourceError("one sentence")))) == "one sentence"


def test_every_rule_says_why_and_what_to_use_instead():
    for code, rule in RULES.items():
        assert rule.code == code
        assert all((rule.name, rule.why, rule.instead))
    assert list(RULES) == sorted(RULES)
    assert [rule.code for rule in RULES.values() if rule.is_note] == ["CM206", "CM901"]
