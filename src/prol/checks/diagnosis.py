"""All checks on one subject, and how their findings print."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from prol import registry
from prol.checks.finding import STATUSES, Check, Finding, Status
from prol.checks.subject import open_subject
from prol.prediction import html_table

_PLURAL = {"issue": "issues", "tip": "tips", "passed": "passed", "not applicable": "not applicable"}


@dataclass(frozen=True)
class Diagnosis:
    """What all checks found, worst first; `problems` names checks of other packages that cannot be loaded."""

    path: Path
    kind: str
    findings: tuple[Finding, ...]
    problems: tuple[str, ...] = ()

    @property
    def has_issues(self) -> bool:
        return any(finding.status == "issue" for finding in self.findings)

    def of(self, status: Status) -> list[Finding]:
        return [finding for finding in self.findings if finding.status == status]

    @property
    def headline(self) -> str:
        counts = {status: len(self.of(status)) for status in STATUSES}
        said = [f"{count} {status if count == 1 else _PLURAL[status]}" for status, count in counts.items() if count]
        return f"{', '.join(said)}: {self.path} is {self.kind}"

    def lines(self, everything: bool = False) -> Iterator[str]:
        """The verdict, then issues and tips with their pages, then in a line each what else was checked."""
        yield self.headline
        for finding in self.findings:
            if finding.status in ("issue", "tip"):
                yield f"{finding.status:5}  {finding.code}  {finding.title}"
                yield f"       {finding.message}"
                if everything:
                    yield from (f"         {place}" for place in finding.places)
                if finding.page is not None:
                    yield f"       {finding.page}"
            elif everything:
                yield f"{finding.status}  {finding.code}  {finding.title}: {finding.message}"
        if not everything:
            for status in STATUSES[2:]:
                if self.of(status):
                    yield f"{status}: {', '.join(f'{one.code} {one.title}' for one in self.of(status))}"
        yield from self.problems

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        rows = [[one.status, one.code, one.title, one.message] for one in self.findings]
        return f"<p>{escape(self.headline)}</p>{html_table([['status', 'code', 'check', 'finding'], *rows])}"

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "path": str(self.path),
            "kind": self.kind,
            "issues": len(self.of("issue")),
            "findings": [finding.to_dict() for finding in self.findings],
            "problems": list(self.problems),
        }


def diagnose(path: str | Path) -> Diagnosis:
    """Checks a run, a folder of runs, a saved learner or a folder of images; nothing is changed."""
    subject = open_subject(path)
    checks, problems = all_checks()
    found = sorted((one(subject) for one in checks), key=lambda one: (STATUSES.index(one.status), one.code))
    return Diagnosis(subject.path, subject.kind, tuple(found), tuple(problems))


def all_checks() -> tuple[list[Check], list[str]]:
    """Every check, and a sentence for each of another package that cannot be loaded."""
    found, problems = registry.load_all("checks")
    return [found[code] for code in sorted(found)], problems
