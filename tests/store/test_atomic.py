"""A file is wholly there or not at all, whatever the disk does."""

import subprocess
import sys
from pathlib import Path

import pytest

from healthsvc.store import StoreError, write_atomically
from healthsvc.store.atomic import quarantined, set_aside

WRITE_TOO_MUCH = """
import sys
from pathlib import Path
from healthsvc.store import StoreError, write_atomically
path = Path(sys.argv[1])
try:
    with write_atomically(path) as temporary:
        temporary.write_bytes(bytes(1_000_000))
except StoreError as failure:
    print(failure)
print(path.read_text(), sorted(p.name for p in path.parent.iterdir()))
"""
LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n" + WRITE_TOO_MUCH
# A private mount namespace: the tiny disk is gone with its process.
TINY_DISK = 'mount -t tmpfs -o size=200k none "$1" && printf old > "$1/file" && exec "$2" -c "$3" "$1/file"'


def fail_half_way(path: Path) -> None:
    with write_atomically(path) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError


def test_a_block_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError):
        fail_half_way(path)
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"file": "old"}


def test_a_block_that_ends_well_replaces_the_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    for text in ("old", "new"):
        with write_atomically(path) as temporary:
            temporary.write_text(text)
    assert {p.name: p.read_text() for p in path.parent.iterdir()} == {"file": "new"}


def test_a_full_disk_leaves_the_old_file_and_says_what_to_do(tmp_path: Path) -> None:
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", TINY_DISK, "sh"]
    ran = subprocess.run([*command, tmp_path, sys.executable, WRITE_TOO_MUCH], capture_output=True, text=True)
    if "unshare" in ran.stderr or "mount" in ran.stderr:
        pytest.skip(f"needs the right to mount a tmpfs: {ran.stderr.strip()}")
    message, kept = ran.stdout.splitlines()
    assert message.startswith(f"{tmp_path}/file: No space left on device. Free space")
    assert kept == "old ['file']"


def test_a_refused_write_leaves_the_old_file_and_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    ran = subprocess.run([sys.executable, "-c", LIMITED, path], capture_output=True, text=True, check=True)
    message, kept = ran.stdout.splitlines()
    assert message == f"{path}: File too large. Raise the file size limit of this process (ulimit -f)"
    assert kept == "old ['file']"


def test_a_place_that_is_no_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "inside"
    with pytest.raises(StoreError) as refused, write_atomically(path):
        pass
    assert refused.value.where == str(path)


def test_damaged_files_are_numbered_as_they_come(tmp_path: Path) -> None:
    for _ in range(11):
        (tmp_path / "file").write_text("")
        set_aside(tmp_path / "file", "a test", "none")
    (tmp_path / "another.corrupt-2").write_text("")
    numbered = [f"file.corrupt-{number}" for number in range(1, 12)]
    assert [path.name for path in quarantined(tmp_path)] == ["another.corrupt-2", *numbered]
