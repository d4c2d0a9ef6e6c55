"""Without Java, commands that need Spark say in one sentence what to install."""

import pytest

from runtime.spark import java


@pytest.mark.parametrize(
    "arguments",
    [["demo"], ["truncate", "--older-than", "7d", "--store", "sqlite:///store.db", "--table", "games"]],
)
def test_what_to_install_is_said(consistent, store, monkeypatch, arguments):
    monkeypatch.setattr(java, "find_java", lambda: None)

    said = consistent(*arguments)

    assert said.code == 1
    assert said.err == f"Error: {java.JAVA_MISSING}\n"
