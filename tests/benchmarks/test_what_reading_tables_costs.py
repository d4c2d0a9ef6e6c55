"""Reading versions as tables is measured with a few of them, without Spark."""

from __future__ import annotations

from benchmarks.tables import ALL, NO_ROW, Measured, make, markdown, without_spark


def test_each_read_gives_all_versions_and_costs_processor_time(tmp_path):
    store = f"sqlite:///{tmp_path}/store.db"
    make(store, 100)

    found = list(without_spark(store, turns=1))

    assert {each.versions for each in found} == {100}
    assert all(each.took > 0 for each in found)


def test_the_rate_on_spark_is_told_without_what_no_row_takes_too():
    found = [Measured("one core", 100, 1, 1), Measured(ALL, 100, 2, 1.5), Measured(NO_ROW, 0, 1, 0.5)]

    *_, whole, none, net = markdown(found).splitlines()

    assert whole == "| Spark, all columns | 20000.00 | 1.50 | 67 |"
    assert none == "| Spark, no row |  | 0.50 |  |"
    assert net == "| Spark, all columns, less what no row takes | | 1.00 | 100 |"
