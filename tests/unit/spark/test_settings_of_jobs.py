"""A session has the settings of jobs while some are under way on it, and then its own again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from runtime.spark.session import AT_START, job_settings, keep_job_settings

ZONE = "spark.sql.session.timeZone"


def session(settings: dict[str, str]) -> Any:
    conf = SimpleNamespace(
        get=settings.get, set=settings.__setitem__, unset=lambda name: settings.pop(name, None)
    )
    return SimpleNamespace(conf=conf)


def test_the_last_of_several_jobs_gives_the_session_back_whichever_object_it_has_for_it():
    settings = {ZONE: "Asia/Tokyo"}
    first, second = job_settings(session(settings)), job_settings(session(settings))

    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert settings[ZONE] == "UTC"
    second.__exit__(None, None, None)

    assert settings == {ZONE: "Asia/Tokyo"}


def test_a_copy_of_a_session_that_is_made_amid_a_job_gives_nothing_back_for_the_original():
    # Given a query whose session is copied from one on which a job is under way
    original = {ZONE: "Asia/Tokyo"}
    starting = job_settings(session(original))
    starting.__enter__()
    copied = dict(original)

    # When its first micro-batch is still under way as that job ends
    keep_job_settings(session(copied))
    starting.__exit__(None, None, None)

    # Then the original has its own settings again, and those of the query stay
    assert original == {ZONE: "Asia/Tokyo"}
    assert copied == AT_START
