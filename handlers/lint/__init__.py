r"""The linter: finds nondeterministic code in the source of handlers, which it reads and does not run.

    report = check([Target(Path("accounts.py"))])
    print(*report.findings, sep="\n")

`check` begins where the framework calls the user's code, and `interpreter` follows statements and calls from there.
`library` knows what functions of libraries do, `values` what names, annotations and attributes stand for, and `source`
the user's modules. `rules` lists the rules, with the names of libraries that break them.
"""

from handlers.lint.check import Report, Target, check
from handlers.lint.rules import RULES, Finding, Rule
from handlers.lint.source import SourceError, locate

__all__ = ["RULES", "Finding", "Report", "Rule", "SourceError", "Target", "check", "locate"]
