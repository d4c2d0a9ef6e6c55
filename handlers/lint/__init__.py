r"""The linter: finds in the source of handlers what could give something else when a message is handled again.

    report = check([Target(Path("accounts.py"))])
    print(*report.findings, sep="\n")

The source is read, not run: from each method with `@handles` on, all calls are followed into the user's own modules.

| what | where |
|---|---|
| what is checked, and what was found | `check`, `roots`, `finding`, `noqa` |
| the rules, and the names that break them | `rules`, `names` |
| the user's modules, their names and definitions | `modules`, `bindings`, `definitions`, `classes`, `models` |
| what an expression may hold | `values`, `annotations`, `results`, `attributes` |
| following statements and calls | `checker`, `statements`, `expressions`, `calls`, `functions`, `methods` |
| what is wrong | `outside` for calls, `order` and `loops` for sets, `mutation` for changes |
"""

from handlers.lint.check import Report, Target, check
from handlers.lint.errors import SourceError
from handlers.lint.finding import Finding
from handlers.lint.modules import locate
from handlers.lint.rules import RULES, Rule

__all__ = ["RULES", "Finding", "Report", "Rule", "SourceError", "Target", "check", "locate"]
