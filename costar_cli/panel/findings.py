"""What a check found: the problem, the place, the fix, and how bad it is."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from costar_cli.errors import DataError

__all__ = ["Finding", "counted", "raise_errors", "shown"]

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check found.

    `error` means that the data cannot be used, `warning` that a result may be wrong, `note` that a reader of the
    results would like to know.
    """

    severity: Severity
    problem: str
    where: str = ""
    fix: str = ""

    def __str__(self) -> str:
        return "".join([f"{self.where}: " if self.where else "", self.problem, f" ({self.fix})" if self.fix else ""])

    def to_json(self) -> dict[str, str]:
        """Return the finding as a member of a `--json` document."""
        return {"severity": self.severity, "problem": self.problem, "where": self.where, "fix": self.fix}


def raise_errors(findings: Iterable[Finding], *, what: str) -> None:
    """Raise one error that tells every finding of severity `error`.

    Args:
        findings: what the checks found; warnings and notes are passed over.
        what: the thing that was checked, for example `the table`.

    Raises:
        DataError: there is at least one error.
    """
    errors = [finding for finding in findings if finding.severity == "error"]
    if not errors:
        return
    first = errors[0]
    if len(errors) == 1:
        raise DataError(first.problem, where=first.where or None, fix=first.fix or None)
    raise DataError(
        f"{what} has {len(errors)} problems",
        where=what,
        fix="correct all of the problems listed",
        details=[str(error) for error in errors],
    )


def shown(names: Iterable[object], limit: int = 5) -> str:
    """Return names for a message, the first few of them: `'a', 'b' and 7 more`."""
    quoted = [f"'{name}'" for name in names]
    more = len(quoted) - limit
    return ", ".join(quoted[:limit]) + (f" and {more} more" if more > 0 else "")


def counted(n: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun: `1 row`, `14 rows`; `many` is the plural where it is not `one` with an s."""
    return f"{n} {one}" if n == 1 else f"{n} {many or one + 's'}"
