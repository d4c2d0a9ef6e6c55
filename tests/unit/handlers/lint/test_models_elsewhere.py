"""Messages and states of other modules are read and made by handlers, so what that runs is checked with them."""

from tests.unit.handlers.lint.conftest import codes

SENT = """
import uuid
from pydantic import Field
from handlers import Message

class Sent(Message):
    id: uuid.UUID = Field(default_factory=uuid.uuid4)
    text: str = ""
"""


def test_a_default_factory_runs_when_a_message_comes_in(lint, tmp_path):
    report = lint(
        "pass",
        before='from sent import Sent\n\nclass Other(Handler[Data]):\n    @handles(by="id")\n'
        "    def sent(self, state: Data, message: Sent, context: Context) -> Data:\n        return state\n",
        sent=SENT,
    )

    assert [(finding.code, finding.path.name) for finding in report.findings] == [("CM203", "sent.py")]


def test_a_default_factory_runs_when_a_message_is_made_without_the_field(lint):
    assert codes(lint("context.publish(Sent(text='a'))", before="from sent import Sent", sent=SENT)) == [
        "CM203"
    ]


def test_it_does_not_run_when_the_field_is_given(lint):
    body = "context.publish(Sent(id=context.new_guid()))"

    assert codes(lint(body, before="from sent import Sent", sent=SENT)) == []


def test_annotations_may_be_text(lint):
    before = "def show(names: 'frozenset[str]'):\n    return [name for name in names]\n"

    assert codes(lint("show(**{})", before=before)) == ["CM701"]


def test_what_was_only_looked_at_is_still_followed_when_it_is_called(lint):
    before = (
        "import time\n\ndef now():\n    return time.time()\n\nclass Box:\n    def __init__(self):\n"
        "        self.begun = now()\n\ndef look(box: Box):\n    return box.begun\n"
    )

    assert codes(lint("look(**{})", before=before)) == []
    assert codes(lint("look(**{}); Box()", before=before)) == ["CM101"]
