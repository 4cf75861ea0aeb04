"""The plugin is run in a pytest of its own, as a user would meet it."""

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import pytest

@pytest.mark.servers
@pytest.mark.parametrize("number", range(3))
def test_reads(number):
    pytest.skip("needs prometheus: apt-get install prometheus")

@pytest.mark.skip(reason="needs the shared data sets")
def test_learns(): ...

@pytest.mark.xfail(reason="known")
def test_dreams():
    assert False

def test_runs(): ...
"""


def run(pytester: pytest.Pytester) -> pytest.RunResult:
    pytester.makeini("[pytest]\nmarkers = servers: needs servers")
    pytester.makepyfile(TESTS)
    return pytester.runpytest_inprocess("-p", "tests.skip_summary")


def test_the_run_ends_with_the_reasons_of_skipped_tests(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    result = run(pytester)
    result.assert_outcomes(passed=1, skipped=4, xfailed=1)
    result.stdout.fnmatch_lines(
        [
            "*= not run =*",
            "3 tests need prometheus: apt-get install prometheus",
            "1 test needs the shared data sets",
            "",
            "*1 passed, 4 skipped, 1 xfailed*",
        ],
        consecutive=True,
    )


def test_in_ci_a_skipped_server_test_fails_the_run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    result = run(pytester)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, skipped=1, xfailed=1, failed=3)
    result.stdout.fnmatch_lines(["*must not be skipped in CI: needs prometheus*"])
