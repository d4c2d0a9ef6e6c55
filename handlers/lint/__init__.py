r"""The linter: finds nondeterministic code in the source of handlers.

    report = check([Target(Path("accounts.py"))])
    print(*report.findings, sep="\n")

The source is read, not run: from each method marked with `@handles`, all calls are followed into the user's own
modules. Each part imports only from those below it:

| part | what it does |
|---|---|
| `check` | finds where the framework calls the user's code; comments that silence findings; the report |
| `interpreter` | follows statements, expressions and calls |
| `library` | operators, and calls of functions and methods of libraries |
| `hazards` | what is wrong with a value: the order of sets, changes of what is shared |
| `resolution` | the values of names, annotations and attributes |
| `values` | what an expression may evaluate to; scopes, functions and classes; what was found |
| `rules`, `source` | the rules, and the names of libraries that break them; the user's modules, parsed |
"""

from handlers.lint.check import Report, Target, check
from handlers.lint.rules import RULES, Finding, Rule
from handlers.lint.source import SourceError, locate

__all__ = ["RULES", "Finding", "Report", "Rule", "SourceError", "Target", "check", "locate"]
