pytest_plugins = [
    "tests.plugins.azurite",
    "tests.plugins.redis",
    "tests.plugins.postgresql",
    "tests.plugins.chance",
    "tests.plugins.chromium",
    "tests.plugins.kafka",
    "tests.plugins.s3",
    "tests.plugins.rabbitmq",
    "tests.plugins.spark",
    "tests.plugins.telemetry",
    "tests.plugins.workers",
]
