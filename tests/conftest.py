pytest_plugins = [
    "tests.plugins.azurite",
    "tests.plugins.chance",
    "tests.plugins.s3",
    "tests.plugins.spark",
    "tests.plugins.workers",
]
