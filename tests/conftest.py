pytest_plugins = [
    "tests.plugins.azurite",
    "tests.plugins.chance",
    "tests.plugins.spark",
    "tests.plugins.workers",
]
