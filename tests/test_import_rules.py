"""Who may import whom: the table is the architecture, and this test is what keeps it true."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "healthsvc"

# Module of healthsvc -> the modules of healthsvc that it may import, besides itself and the version.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "fleet": frozenset(),
    "config": frozenset(),
    "features": frozenset({"fleet"}),
    "forecasters": frozenset({"fleet", "features"}),
    "incidents": frozenset({"fleet", "features"}),
    "calibration": frozenset({"fleet"}),
    "guidance": frozenset({"fleet"}),
    "store": frozenset({"fleet"}),
    "telemetry": frozenset({"fleet", "config"}),  # config: the types of its own settings only
    "simulator": frozenset({"fleet"}),
    "risk": frozenset({"fleet", "calibration", "guidance"}),
    "alerts": frozenset({"fleet", "calibration", "guidance", "risk"}),
    "evaluation": frozenset({"fleet", "features", "risk", "alerts", "incidents", "calibration"}),
    "publish": frozenset({"fleet", "risk", "alerts", "store", "config"}),  # config: as for telemetry
    "testing": frozenset({"fleet", "features", "forecasters", "simulator"}),
}
MAY_IMPORT["engine"] = frozenset(MAY_IMPORT)
MAY_IMPORT["cli"] = frozenset(MAY_IMPORT)
MAY_IMPORT["__main__"] = frozenset({"cli"})

# Numbers in, numbers out: no I/O, no clock, no logging, no hidden randomness.
NUMBERS_ONLY = frozenset(
    {"fleet", "features", "forecasters", "incidents", "risk", "calibration", "alerts"},
)
IMPURE_MODULES = frozenset(
    {"time", "logging", "structlog", "random", "os", "io", "pathlib", "shutil", "tempfile", "subprocess"}
    | {"asyncio", "threading", "socket", "http", "urllib", "requests", "httpx", "stamina"}
    | {"sqlite3", "sqlalchemy", "pyarrow", "rich", "typer"}
)
IMPURE_CALLS = frozenset({"open", "print", "input"})
CLOCK_METHODS = frozenset({"now", "utcnow", "today"})  # of datetime and date
NUMPY_FILES = frozenset({"np.load", "np.save", "np.savez", "np.savez_compressed", "np.loadtxt", "np.fromfile"})

# Third-party library -> the only modules that may use it.
ONLY_IN: dict[str, frozenset[str]] = {
    "fastapi": frozenset({"publish"}),
    "fastapi_offline": frozenset({"publish"}),
    "prometheus_client": frozenset({"publish", "telemetry"}),
    "prometheus_api_client": frozenset({"telemetry"}),
}
# Seconds to import each: help, health and metrics must answer without them.
LAZY_ONLY = frozenset({"sklearn", "statsmodels", "pandas", "joblib", "distributed", "ray"})


@dataclass(frozen=True)
class Import:
    """One import: the dotted name, the line, and whether it runs when the file is loaded."""

    name: str
    line: int
    at_load: bool


def imports_of(tree: ast.Module, package: tuple[str, ...]) -> Iterator[Import]:
    """Every import of a file that lies in `package`, also those in functions and under TYPE_CHECKING."""
    pending: list[tuple[ast.AST, bool]] = [(tree, True)]
    while pending:
        node, at_load = pending.pop()
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, at_load) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            source = ".".join((*base, *filter(None, [node.module])))
            yield from (Import(f"{source}.{alias.name}", node.lineno, at_load) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            yield from (Import(str(a.value), node.lineno, at_load) for a in node.args if isinstance(a, ast.Constant))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            at_load = False
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            pending += [(child, False) for child in node.body]
            pending += [(child, at_load) for child in node.orelse]
        else:
            pending += [(child, at_load) for child in ast.iter_child_nodes(node)]


def impure_calls(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Calls that read a clock, a file, the terminal or the system's entropy, without an import of their own."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            yield node.func.id, node.lineno
        if isinstance(node.func, ast.Attribute) and node.func.attr in CLOCK_METHODS:
            owner = ast.unparse(node.func.value)
            if owner.split(".")[-1] in ("datetime", "date"):
                yield f"{owner}.{node.func.attr}", node.lineno
        name = ast.unparse(node.func)
        if name in NUMPY_FILES or (name.endswith("default_rng") and not node.args and not node.keywords):
            yield name, node.lineno


def violations(package: Path) -> list[str]:
    """Every broken rule in a package tree, as `file:line: what`."""
    found = []
    own = frozenset(path.stem for path in package.iterdir())
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        me = parts[0]  # "__init__" for the package's own file, which may import nothing of healthsvc
        if me not in MAY_IMPORT and me != "__init__":
            found.append(f"{path}:1: healthsvc.{me} is not in the table; give it a row that says what it may import")
            continue
        tree = ast.parse(path.read_text())
        allowed = MAY_IMPORT.get(me, frozenset())
        for each in imports_of(tree, ("healthsvc", *parts[:-1])):
            where = f"{path}:{each.line}:"
            top, *rest = each.name.split(".")
            if top == "healthsvc" and rest:
                target = rest[0]
                if target in own | MAY_IMPORT.keys() and target not in allowed | {me}:
                    found.append(f"{where} healthsvc.{me} may not import healthsvc.{target}")
            elif me in NUMBERS_ONLY and top in IMPURE_MODULES:
                found.append(f"{where} healthsvc.{me} is numbers only and may not import {top}")
            elif me not in ONLY_IN.get(top, {me}):
                found.append(f"{where} only {', '.join(sorted(ONLY_IN[top]))} may import {top}, not healthsvc.{me}")
            if top in LAZY_ONLY and each.at_load:
                found.append(f"{where} {top} is slow to load; import it inside the function that uses it")
        if me in NUMBERS_ONLY:
            found += [
                f"{path}:{line}: healthsvc.{me} is numbers only and may not call {call}()"
                for call, line in impure_calls(tree)
            ]
    return found


def test_every_import_keeps_to_the_table() -> None:
    broken = violations(PACKAGE)
    assert not broken, "\n".join(["", *broken])


def test_evaluation_and_simulator_never_import_publish() -> None:
    for module in ("evaluation", "simulator"):
        assert "publish" not in reach(module), f"{module} reaches publish through the table"


def reach(module: str) -> set[str]:
    """What a module may import, directly or through others."""
    found: set[str] = set()
    pending = [module]
    while pending:
        fresh = MAY_IMPORT[pending.pop()] - found
        found |= fresh
        pending += fresh
    return found


def test_the_table_has_no_cycles() -> None:
    assert [module for module in MAY_IMPORT if module in reach(module) - {"engine", "cli"}] == []


@pytest.mark.parametrize(
    ("file", "source", "complaint"),
    [
        ("fleet/gpus.py", "import healthsvc.features", "fleet may not import healthsvc.features"),
        ("fleet/gpus.py", "from healthsvc import features", "fleet may not import healthsvc.features"),
        ("fleet/gpus.py", "from ..features import slopes", "fleet may not import healthsvc.features"),
        ("fleet/gpus.py", "from .. import features", "fleet may not import healthsvc.features"),
        ("telemetry/grid.py", "def f():\n    from healthsvc.store import ledger", "may not import healthsvc.store"),
        ("store/ledger.py", "if TYPE_CHECKING:\n    from healthsvc.risk import Risk", "may not import healthsvc.risk"),
        ("features/a.py", "import_module('healthsvc.engine')", "may not import healthsvc.engine"),
        ("simulator/a.py", "from healthsvc.publish import rest", "may not import healthsvc.publish"),
        ("evaluation/a.py", "from healthsvc.publish import rest", "may not import healthsvc.publish"),
        ("__init__.py", "from healthsvc.fleet import GpuId", "__init__ may not import healthsvc.fleet"),
        ("helpers.py", "", "healthsvc.helpers is not in the table"),
        ("risk.py", "import time", "risk is numbers only and may not import time"),
        ("calibration.py", "def f():\n    from pathlib import Path", "numbers only and may not import pathlib"),
        ("alerts/hold.py", "now = datetime.datetime.now()", "may not call datetime.datetime.now()"),
        ("forecasters/a.py", "text = open('prior.json').read()", "may not call open()"),
        ("features/a.py", "rates = np.load('rates.npy')", "may not call np.load()"),
        ("features/a.py", "rng = np.random.default_rng()", "may not call np.random.default_rng()"),
        ("engine.py", "from fastapi import FastAPI", "only publish may import fastapi, not healthsvc.engine"),
        ("cli.py", "import prometheus_client.parser", "only publish, telemetry may import prometheus_client"),
        ("publish/a.py", "import prometheus_api_client", "only telemetry may import prometheus_api_client"),
        ("forecasters/a.py", "from sklearn.covariance import MinCovDet", "sklearn is slow to load"),
        ("engine.py", "import pandas as pd", "pandas is slow to load"),
        ("forecasters/a.py", "try:\n    import statsmodels.api\nexcept ImportError: ...", "statsmodels is slow"),
    ],
)
def test_a_seeded_fault_is_caught(tmp_path: Path, file: str, source: str, complaint: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(source)
    (found,) = violations(tmp_path)
    assert complaint in found


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("features/slopes.py", "from healthsvc.fleet.history import DAY_S\nfrom . import windows\nimport numpy as np"),
        ("forecasters/a.py", "def fit():\n    import statsmodels.api as sm\n    from sklearn import covariance"),
        ("forecasters/a.py", "if TYPE_CHECKING:\n    from sklearn.base import BaseEstimator"),
        ("publish/metrics.py", "from healthsvc import __version__\nfrom healthsvc.config import Settings"),
        ("features/a.py", "rng = np.random.default_rng(7)\nstate = forecaster.load(arrays)"),
        ("alerts/text.py", "from datetime import UTC, datetime\nwhen = datetime.fromtimestamp(0, UTC)"),
        ("engine.py", "from healthsvc.publish import rest\nfrom healthsvc.telemetry import grid\nimport time"),
    ],
)
def test_honest_code_passes(tmp_path: Path, file: str, source: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(source)
    assert violations(tmp_path) == []
