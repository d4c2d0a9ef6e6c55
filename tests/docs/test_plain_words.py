"""What scripts/plain_words.py finds in a page."""

from scripts.plain_words import paraphrases


def test_a_paraphrase_is_found_outside_code_and_links():
    page = "One.\nNobody knows `nobody`, [it](nobody.md).\n```text\nnone of\n```\nNone of them.\n"

    assert [(line, words) for line, words, _ in paraphrases(page)] == [(2, "Nobody"), (6, "None of")]
