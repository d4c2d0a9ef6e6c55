"""A batch with guard: workers turn messages of handlers that look past their context into dead letters."""

import json

from tests.support.outcomes import by_status
from tests.unit.handlers import onlooker


def test_what_looks_is_a_dead_letter_and_what_does_not_is_handled(place):
    # Given a log in which each second message makes the handler look at the clock or the environment
    hows = ["captured", "now", "dates", "environ", "context", "catch uuid4"]
    log = place.folder / "log.jsonl"
    log.write_text(
        "\n".join(
            json.dumps({"message_id": f"m{at}", "type": "Look", "body": {"house": f"h{at % 3}", "how": how}})
            for at, how in enumerate(hows * 5)
        )
    )

    # When a batch runs with guard
    outcomes = place.run(str(log), app=onlooker.app, guard=True)

    # Then those are dead letters that say what to use instead, and the others are handled
    assert by_status(outcomes) == {
        ("Onlooker", "processed"): 15,
        ("Onlooker", "dead_letter", "handler_error"): 15,
    }
    errors = [row["error"] for row in outcomes.where("reason = 'handler_error'").collect()]
    assert sum(error.endswith("use context.now.") for error in errors) == 5
    assert sum(error.endswith("use context.new_guid().") for error in errors) == 5
    assert sum("context.capture(" in error for error in errors) == 5
