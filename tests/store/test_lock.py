"""One service a state directory, and no lock that outlives its holder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from healthsvc.store import StateLock, StoreError

HOLD = """
import sys
from pathlib import Path
from healthsvc.store import StateLock
with StateLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_service_on_the_same_directory_is_told_who_holds_it(tmp_path: Path) -> None:
    directory = tmp_path / "made" / "here"
    command = [sys.executable, "-c", HOLD, str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreError) as refused, StateLock(directory):
            pass
        for part in (str(directory), f"pid {holder.pid}", "Stop it", "store.directory"):
            assert part in str(refused.value)
        holder.kill()
        holder.wait()
        with StateLock(directory):  # the kill has freed it: nothing to clean up
            assert f"pid {os.getpid()} " in (directory / "lock").read_text()


def test_the_lock_can_be_taken_again_after_it_was_left(tmp_path: Path) -> None:
    for _ in range(2):
        with StateLock(tmp_path):
            pass


@pytest.mark.parametrize("place", ["/proc/healthsvc", "/sys/healthsvc", "{file}/state"])
def test_a_directory_that_cannot_be_made_is_refused_with_a_cure(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    directory = Path(place.format(file=tmp_path / "file"))
    with pytest.raises(StoreError, match=r"store\.directory") as refused, StateLock(directory):
        pass
    assert refused.value.where == str(directory)
