r"""The linter: finds nondeterministic code in the source of handlers, which it reads and does not run.

    report = check([Target(Path("accounts.py"))])
    print(*report.findings, sep="\n")

`check` begins where the framework calls the user's code, `interpreter` follows statements and calls from there,
`resolution` finds what names stand for, `library` knows functions of libraries, and `rules` lists what breaks a rule.
"""

from handlers.lint.check import Report, Target, check
from handlers.lint.rules import RULES, Finding, Rule
from handlers.lint.source import SourceError, locate

__all__ = ["RULES", "Finding", "Report", "Rule", "SourceError", "Target", "check", "locate"]
