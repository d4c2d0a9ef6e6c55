"""What is imported from `handlers.lint`, and that it crosses process borders."""

from handlers.lint import RULES


def test_every_rule_says_why_and_what_to_use_instead():
    for code, rule in RULES.items():
        assert rule.code == code
        assert all((rule.name, rule.why, rule.instead))
    assert list(RULES) == sorted(RULES)
    assert [rule.code for rule in RULES.values() if rule.is_note] == ["CM206", "CM901"]
