"""Put Apache Kafka into .make/kafka, for the tests of consumers: its jars from Maven Central, by Maven.

Nothing is started here. Java is the one of the other tests.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".make" / "kafka"
VERSION = "4.3.1"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
MISSING = (
    "Apache Kafka's jars cannot be had: install Maven (apt-get install maven), then `make setup-servers`."
)
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-simple</artifactId>
      <version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""


def main() -> None:
    """Download the jars. Exits with what to do where that is not possible."""
    maven = shutil.which("mvn")
    if maven is None:
        sys.exit(MISSING)
    print(f"Downloading Apache Kafka {VERSION} into .make/kafka ...", flush=True)
    shutil.rmtree(PLACE, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "pom.xml").write_text(POM)
        command = [maven, "-B", "-q", PLUGIN, f"-DoutputDirectory={PLACE}", "-DincludeScope=runtime"]
        done = subprocess.run(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
    if done.returncode or not list(PLACE.glob("kafka_2.13-*.jar")):
        sys.exit(f"{done.stdout}\n{MISSING}")


if __name__ == "__main__":
    main()
