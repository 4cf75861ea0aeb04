"""The written map and the house agree: what ARCHITECTURE.md and the docs name exists, and what exists they name."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from healthsvc.config import Settings

ROOT = Path(__file__).parent.parent
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
SAMPLE = ROOT / "healthsvc.sample.toml"
FENCE = "```text tree"


def tree_paths(markdown: str) -> list[str]:
    """The paths that the tree in a fenced block names, folders with a trailing slash.

    One or several names a line (`gpus.py · signals.py`), deeper lines indented further, spaces or box characters
    alike; what follows two spaces is a description. `<name>` stands for any name.
    """
    if f"\n{FENCE}\n" not in f"\n{markdown}":
        raise AssertionError(f"ARCHITECTURE.md has no code block that begins with the line {FENCE}")
    block = markdown.split(FENCE, 1)[1].split("```", 1)[0]
    paths: list[str] = []
    open_folders: list[tuple[int, str]] = []
    for line in block.splitlines():
        bare = line.lstrip(" │├└─|+`-\t")
        if not bare.strip():
            continue
        depth = len(line) - len(bare)
        while open_folders and open_folders[-1][0] >= depth:
            open_folders.pop()
        parent = open_folders[-1][1] if open_folders else ""
        names = re.split(r"\s{2,}", bare.strip())[0].split(" · ")
        paths += [parent + name for name in names]
        if names[-1].endswith("/"):
            open_folders.append((depth, parent + names[-1]))
    return paths


def as_glob(path: str) -> str:
    return re.sub(r"<[^>]+>", "*", path).rstrip("/")


def missing_on_disk(paths: list[str], root: Path) -> list[str]:
    """The named paths that do not exist, or are a file where a folder is named or the other way round."""
    return [
        path
        for path in paths
        if not any(found.is_dir() == path.endswith("/") for found in root.glob(as_glob(path) or "."))
    ]


def unnamed(entries: list[str], paths: list[str]) -> list[str]:
    """The entries that the tree does not name."""
    named = {as_glob(path) for path in paths}
    return [entry for entry in entries if entry not in named]


def table_names(markdown: str) -> set[str]:
    """Every name in the first column of any table."""
    rows = re.findall(r"^\|([^|]+)\|", markdown, re.MULTILINE)
    return {canonical(name) for row in rows for name in re.findall(r"[A-Za-z0-9][\w.-]*", row)}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


CLUSTER_EXTRAS = frozenset({"dask", "ray"})  # for those who have such a cluster; nobody else installs them


def declared_dependencies(without: frozenset[str] = frozenset()) -> list[str]:
    """The distributions that pyproject.toml asks for, those of the extras included, but for some extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {name: wanted for name, wanted in project["optional-dependencies"].items() if name not in without}
    wanted = project["dependencies"] + [name for extra in extras.values() for name in extra]
    return sorted({canonical(re.match(r"[\w.-]+", requirement)[0]) for requirement in wanted})  # type: ignore[index]


def setting_names() -> Iterator[tuple[str, str]]:
    """Every (section, setting) of the configuration."""
    for section, field in Settings.model_fields.items():
        model = field.annotation
        assert isinstance(model, type)
        assert issubclass(model, BaseModel)
        yield from ((section, name) for name in model.model_fields)


def sample_names(toml: str) -> set[tuple[str, str]]:
    """Every (section, setting) that a sample names, whether live or commented out."""
    found, section = set(), ""
    for line in toml.splitlines():
        bare = line.removeprefix("#").strip()
        if header := re.fullmatch(r"\[([\w.]+)\].*", bare):
            section = header[1]
        elif setting := re.match(r"([a-z]\w*)\s*=(?!=)", bare):
            found.add((section, setting[1]))
    return found


def published_families(folder: Path) -> set[str]:
    """Every metric family named by a string in the code of a folder."""
    strings = (
        node.value
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return {name for text in strings for name in re.findall(r"\bhealthsvc_[a-z0-9_]*[a-z0-9]\b", text)}


def test_everything_the_tree_names_exists() -> None:
    missing = missing_on_disk(tree_paths(ARCHITECTURE.read_text()), ROOT)
    assert not missing, f"ARCHITECTURE.md's tree names what does not exist: {missing}; correct the tree"


def test_every_module_is_in_the_tree() -> None:
    paths = tree_paths(ARCHITECTURE.read_text())
    modules = [str(path.relative_to(ROOT)) for path in (ROOT / "healthsvc").rglob("*.py")]
    # A package's __init__.py goes by its folder.
    entries = sorted(module.removesuffix("/__init__.py") for module in modules)
    missing = unnamed(entries, paths)
    assert not missing, f"not in ARCHITECTURE.md's tree: {missing}; add a line for each"


def test_every_top_level_entry_is_in_the_tree() -> None:
    paths = tree_paths(ARCHITECTURE.read_text())
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode:
        pytest.skip("needs a git checkout, to know which files belong to the project")
    missing = unnamed(sorted({name.split("/")[0] for name in listing.stdout.splitlines()}), paths)
    assert not missing, f"not in ARCHITECTURE.md's tree: {missing}; add a line for each"


def test_every_dependency_is_explained() -> None:
    explained = table_names(ARCHITECTURE.read_text())
    missing = [name for name in declared_dependencies() if name not in explained]
    assert not missing, f"no line in ARCHITECTURE.md's dependency table: {missing}; say what each is for"


def test_every_dependency_is_pinned() -> None:
    pinned = {
        canonical(name) for name in re.findall(r"^([\w.-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    }
    missing = [name for name in declared_dependencies(without=CLUSTER_EXTRAS) if name not in pinned]
    assert not missing, f"not in requirements.lock: {missing}; run `make lock`"


def test_every_setting_is_in_the_sample() -> None:
    sample = sample_names(SAMPLE.read_text())
    missing = [f"{section}.{name}" for section, name in setting_names() if (section, name) not in sample]
    assert not missing, f"not in {SAMPLE.name}: {missing}; add each under its section, commented, with its default"


def test_every_setting_of_the_sample_exists() -> None:
    unknown = sample_names(SAMPLE.read_text()) - set(setting_names())
    assert not unknown, f"{SAMPLE.name} names settings that do not exist: {sorted(unknown)}"


def test_every_metric_family_is_documented() -> None:
    families = published_families(ROOT / "healthsvc" / "publish")
    assert families, "no metric family found in healthsvc/publish: look at how they are named there"
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "deploy").rglob("*.md"))]
    documented = "\n".join(path.read_text() for path in documents)
    missing = sorted(name for name in families if not re.search(rf"\b{name}\b", documented))
    assert not missing, f"in neither README.md nor docs/ nor deploy/: {missing}; say what each means"


SMALL_TREE = f"""# Title
{FENCE}
pyproject.toml · README.md   what it is
healthsvc/                   the package
  fleet/                     the nouns
    gpus.py · xids.py        who they are
  cli.py
└── models/<forecaster>/     cards
```
"""


def test_a_tree_is_read_with_its_folders() -> None:
    paths = "pyproject.toml README.md healthsvc/ healthsvc/fleet/ healthsvc/fleet/gpus.py healthsvc/fleet/xids.py"
    assert tree_paths(SMALL_TREE)[:6] == paths.split()
    assert tree_paths(SMALL_TREE)[6] == "healthsvc/cli.py"


def test_a_path_that_is_missing_or_unnamed_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "models" / "ecc_growth").mkdir(parents=True)
    (tmp_path / "gone.py").mkdir()
    named = ["models/", "models/<forecaster>/", "models/<forecaster>/card.md", "gone.py"]
    assert missing_on_disk(named, tmp_path) == ["models/<forecaster>/card.md", "gone.py"]
    assert unnamed(["models", "setup.cfg"], named) == ["setup.cfg"]


def test_a_sample_names_settings_live_or_commented() -> None:
    sample = "[server]\nport = 9920\n# Where to listen.\n# host = '::1'\n#[cycle]\n#step_s = 60\n"
    assert sample_names(sample) == {("server", "port"), ("server", "host"), ("cycle", "step_s")}
