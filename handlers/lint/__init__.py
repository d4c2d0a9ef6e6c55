r"""The linter: finds nondeterministic code in the source of handlers, without running it.

    report = check([Target(Path("accounts.py"))])
    print(*report.findings, sep="\n")

`check` starts from the methods that the framework calls, and `interpreter` follows statements and calls. `library`
models functions of libraries, `values` possible values, `source` the user's modules. `rules` lists the rules.
"""

from handlers.lint.check import Report, Target, check
from handlers.lint.rules import RULES, Finding, Rule
from handlers.lint.source import SourceError, locate

__all__ = ["RULES", "Finding", "Report", "Rule", "SourceError", "Target", "check", "locate"]
