"""The rules: what a handler must not use, why, and what to use instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

_CAPTURE = "context.capture(name, function)"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule. The first digit of its code is its group; a note is shown, and does not count as a finding."""

    code: str
    name: str
    why: str
    instead: str
    is_note: bool = False


_ALL = (
    Rule("CM101", "wall clock", "a replay reads another time", "context.now"),
    Rule("CM102", "process clock", "it starts at another value in each process",
         f"context.now, or {_CAPTURE} for a measurement"),
    Rule("CM103", "local time zone", "it may differ between machines", "an explicit time zone, such as UTC"),
    Rule("CM104", "waiting", "it delays all later messages, and depends on the clock",
         "a message that says when it is due, and context.now"),
    Rule("CM201", "random numbers", "a replay draws other numbers", "context.random"),
    Rule("CM202", "secrets", "a replay draws other ones",
         f"context.random, or {_CAPTURE} for what must be unpredictable"),
    Rule("CM203", "guids", "a replay makes another one", "context.new_guid()"),
    Rule("CM204", "random numbers of a library", "a replay draws other numbers",
         "context.random, or the library's generator seeded with context.random.getrandbits(64)"),
    Rule("CM205", "shared random generator", "its numbers depend on what was drawn before",
         "context.random, or a generator created and seeded in the handler"),
    Rule("CM206", "foreseeable draws", "whoever chooses message ids can compute them",
         "keyed draws (--draws keyed) where senders are not trusted", is_note=True),
    Rule("CM301", "environment variables", "they may differ between processes", _CAPTURE),
    Rule("CM302", "process information", "it differs between processes", _CAPTURE),
    Rule("CM303", "machine information", "it differs between machines", _CAPTURE),
    Rule("CM304", "locale", "it may differ between machines", "an explicit format"),
    Rule("CM401", "files", "their content changes, and differs between machines", _CAPTURE),
    Rule("CM402", "network", "a replay may get another answer, or none",
         f"{_CAPTURE}, or a message to whoever calls the service"),
    Rule("CM403", "other programs", "a replay runs them again, and may get another result",
         f"{_CAPTURE}, or a message to whoever runs the program"),
    Rule("CM404", "databases", "a replay may read other data, and writes again",
         f"the state, a message, or {_CAPTURE}"),
    Rule("CM405", "console input", "a replay gets no input, or another one", "a field of the message"),
    Rule("CM501", "threads and processes", "their order of execution is not deterministic", "sequential code"),
    Rule("CM502", "asynchronous code", "its order of execution is not deterministic", "sequential code"),
    Rule("CM601", "object identity", "it is a memory address", "a field that names the object, or context.new_guid()"),
    Rule("CM602", "hash", "the hashes of str and bytes differ between processes", "hashlib, or the value itself"),
    Rule("CM603", "memory", "its layout differs between processes", "plain values"),
    Rule("CM701", "order of a set", "it differs between processes", "sorted(...)"),
    Rule("CM702", "arbitrary member of a set", "which one differs between processes", "min(...), or sorted(...)[0]"),
    Rule("CM703", "text of a set", "the order of its members differs between processes", "sorted(...)"),
    Rule("CM704", "float sum over a set", "its rounding depends on the order of the members",
         "math.fsum(...), or Decimal"),
    Rule("CM705", "ties in a set", "of members with equal keys the first is taken, and their order differs",
         "a key that ends in the member itself: key=lambda each: (each.score, each.name)"),
    Rule("CM801", "module state", "it differs between processes, and a restart loses it", "a field of the state"),
    Rule("CM802", "class or handler state", "it differs between processes, and a restart loses it",
         "a field of the state"),
    Rule("CM803", "mutable default argument", "all calls share it", "None as the default"),
    Rule("CM804", "cached results", "they may depend on earlier messages", "the plain function, or a local variable"),
    Rule("CM805", "process settings", "all handlers of the process share them",
         "arguments; for decimals decimal.Context(prec=...)"),
    Rule("CM806", "mutated state", "the given state is the version before, which must not change",
         "state.model_copy(update=...)"),
    Rule("CM807", "mutated message", "a replay must get the same message", "a local variable"),
    Rule("CM808", "mutable module state", "earlier messages may have changed it", f"the state, or {_CAPTURE}"),
    Rule("CM901", "not followed", "the source does not tell what is called", "a name that stands in the source",
         is_note=True),
    Rule("CM902", "noqa without a reason", "nobody can tell why it is allowed here", "# noqa: CODE and the reason"),
    Rule("CM903", "unused noqa", "it would hide later findings", "the line without it"),
)  # fmt: skip

RULES: Mapping[str, Rule] = MappingProxyType({rule.code: rule for rule in _ALL})
