r"""The linter: finds nondeterministic code in the source of handlers.

    report = check([Target(Path("accounts.py"))])
    print(*report.findings, sep="\n")

The source is read, not run: from each method marked with `@handles`, all calls are followed into the user's own
modules. Each part imports only from those below it:

| part | what it does |
|---|---|
| `check` | checks files, and reports what was found |
| `roots`, `noqa` | where the framework calls the user's code; comments that silence findings |
| `interpreter` | follows statements, expressions and calls |
| `hazards` | what is wrong with a value: the order of sets, changes of what is shared |
| `resolution` | the values of names, annotations and attributes |
| `checker` | what all parts above share, and through which they call each other |
| `finding`, `values` | a broken rule at its place; what an expression may evaluate to |
| `rules`, `names`, `source` | the rules; the library names that break them; the user's modules, parsed |
"""

from handlers.lint.check import Report, Target, check
from handlers.lint.rules import RULES, Finding, Rule
from handlers.lint.source import SourceError, locate

__all__ = ["RULES", "Finding", "Report", "Rule", "SourceError", "Target", "check", "locate"]
