"""Properties are tried without a deadline: how long an example takes depends on what else the machine does."""

from hypothesis import settings

settings.register_profile("without a deadline", deadline=None)
settings.load_profile("without a deadline")
