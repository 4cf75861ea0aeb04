"""A pytest plugin: says at the end, grouped, why tests were skipped, so that a green run does not hide what never ran.

With CI=true in the environment a test marked `servers` must run: its skip counts as an error.
"""

import os
from collections import Counter
from collections.abc import Generator

import pytest

SKIPPED = "Skipped: "


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why the test was skipped; an expected failure (xfail) is no skip and gives ""."""
    if report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return ""
    where_and_why = report.longrepr
    why = where_and_why[2] if isinstance(where_and_why, tuple) else str(where_and_why)
    return why.removeprefix(SKIPPED) or "no reason given"


def summary_lines(reasons: Counter[str]) -> list[str]:
    """One line a reason, the most frequent first: `3 tests need prometheus: apt-get install prometheus`."""
    lines = []
    for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
        subject = "1 test" if count == 1 else f"{count} tests"
        for need in ("needs ", "need "):
            if reason.startswith(need):
                lines.append(f"{subject} {'needs' if count == 1 else 'need'} {reason.removeprefix(need)}")
                break
        else:
            lines.append(f"{subject} skipped: {reason}")
    return lines


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    reason = skip_reason(report)
    if reason and os.environ.get("CI") == "true" and item.get_closest_marker("servers"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} must not be skipped in CI: {reason}"
    return report


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = summary_lines(Counter(map(skip_reason, terminalreporter.stats.get("skipped", []))))
    if lines:
        terminalreporter.section("not run")
        for line in lines:
            terminalreporter.line(line)
