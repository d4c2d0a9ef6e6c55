"""The rules: what a handler must not use, why, and what to use instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

_CAPTURE = "context.capture(name, function)"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule. The first digit of its code is its group; a note says something and is no finding."""

    code: str
    name: str
    why: str
    instead: str
    is_note: bool = False


_ALL = (
    Rule("CM101", "wall clock", "another time is read when the message is handled again", "context.now"),
    Rule("CM102", "process clock", "it counts from another moment in each process",
         f"context.now, or {_CAPTURE} for a measurement"),
    Rule("CM103", "local time zone", "each machine may have another one", "a time zone that is named, such as UTC"),
    Rule("CM104", "waiting", "it delays every message behind this one and depends on the clock",
         "a message that says when it is due, and context.now"),
    Rule("CM201", "random numbers", "others are drawn when the message is handled again", "context.random"),
    Rule("CM202", "secrets", "others are drawn when the message is handled again",
         f"context.random, or {_CAPTURE} for what nobody may guess"),
    Rule("CM203", "guids", "another one is made when the message is handled again", "context.new_guid()"),
    Rule("CM204", "random numbers of a library", "others are drawn when the message is handled again",
         "context.random, or the library's generator seeded with context.random.getrandbits(64)"),
    Rule("CM205", "a generator kept between messages", "what it draws depends on what was drawn before",
         "context.random, or a generator made and seeded in the handler"),
    Rule("CM301", "environment variables", "each process may have others", _CAPTURE),
    Rule("CM302", "facts of the process", "each process has others", _CAPTURE),
    Rule("CM303", "facts of the machine", "each machine has others", _CAPTURE),
    Rule("CM304", "locale", "each machine may have another one", "a format of your own"),
    Rule("CM401", "files", "what is in them changes, and each machine has others", _CAPTURE),
    Rule("CM402", "network", "it may answer otherwise, later, or not at all",
         f"{_CAPTURE}, or a message to whoever calls the service"),
    Rule("CM403", "other programs", "they may answer otherwise, and do twice what is delivered twice",
         f"{_CAPTURE}, or a message to whoever runs the program"),
    Rule("CM404", "databases", "what is in them changes, and what is written is written again for each copy",
         f"the state, a message, or {_CAPTURE}"),
    Rule("CM405", "console input", "nobody types the same again", "a field of the message"),
    Rule("CM501", "threads and processes", "the order in which they work is another one each time",
         "plain code, one step after another"),
    Rule("CM502", "asynchronous code", "the order in which it goes on depends on what it waits for",
         "plain code, one step after another"),
    Rule("CM601", "identity", "it is an address in memory", "a field that names the object, or context.new_guid()"),
    Rule("CM602", "hash", "the hashes of text and bytes differ between processes",
         "hashlib, or the value itself"),
    Rule("CM603", "memory", "each process has another one", "plain values"),
    Rule("CM701", "order of a set", "it differs between processes", "sorted(...)"),
    Rule("CM702", "some member of a set", "which one it is differs between processes", "min(...), or sorted(...)[0]"),
    Rule("CM703", "text of a set", "its members stand in another order in each process", "sorted(...)"),
    Rule("CM704", "sum of floats of a set", "it is rounded otherwise in another order", "math.fsum(...), or Decimal"),
    Rule("CM705", "ties in a set", "of members with the same key the first is taken, and the order differs",
         "a key that ends in the member itself: key=lambda each: (each.score, each.name)"),
    Rule("CM801", "state of a module", "what is kept there differs between processes and is lost with them",
         "the state: a field of it"),
    Rule("CM802", "state of a class or handler", "what is kept there differs between processes and is lost with them",
         "the state: a field of it"),
    Rule("CM803", "mutable default argument", "it is kept between calls", "None as the default"),
    Rule("CM804", "cache of results", "what it gives may depend on what was handled before",
         "the plain function, or a local variable"),
    Rule("CM805", "settings of the process", "all handlers of the process share them, in any order",
         "arguments; for decimals decimal.Context(prec=...)"),
    Rule("CM806", "changed state", "the state given is that of the version before, which is kept",
         "state.model_copy(update=...)"),
    Rule("CM807", "changed message", "the next delivery of it must be the same", "a local variable"),
    Rule("CM808", "module state that changes", "it may have been changed before this message or not",
         f"the state, or {_CAPTURE}"),
    Rule("CM901", "not followed", "what is called cannot be told from the source",
         "a name that stands in the source", is_note=True),
    Rule("CM902", "noqa without a reason", "nobody can tell why it is allowed here", "# noqa: CODE and the reason"),
    Rule("CM903", "noqa that silences nothing", "it would hide a finding that is not there yet",
         "the line without it"),
)  # fmt: skip

RULES: Mapping[str, Rule] = MappingProxyType({rule.code: rule for rule in _ALL})
