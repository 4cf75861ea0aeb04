"""What a file is taken for, and what one bad byte, cell or line of it costs."""

import gzip
import re
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from healthsvc.cli import app
from healthsvc.fleet import DAY_S
from healthsvc.telemetry import exposition
from healthsvc.telemetry.decode import Samples
from healthsvc.telemetry.imports import Imported, ImportFileError, ImportSpec, import_files
from healthsvc.telemetry.imports.gather import Gatherer
from healthsvc.telemetry.imports.text import blocks
from healthsvc.telemetry.imports.times import unix_seconds

FIXTURES = Path(__file__).parent.parent / "data" / "fixtures" / "imports"
UUID = "GPU-00000001-0000-4000-8000-000000000001"
LABELS = f'DCGM_FI_DRIVER_VERSION="570", Hostname="n", UUID="{UUID}"'
AT_S = 1_740_844_800


def imported(tmp_path: Path, content: str) -> Imported:
    (tmp_path / "log").write_text(content)
    return import_files([tmp_path / "log"], tmp_path / "recording", ImportSpec())


def calendar(month: str) -> str:
    rows = (f"Thu {month} {day:2d} 10:00:00 2026, {UUID}, 4{day % 10}\n" for day in (5, 12, 19))
    return "timestamp, uuid, temperature.gpu\n" + "".join(rows)


def named_first(name: str) -> str:
    rows = (f"{name}, {UUID}, 2026/10/0{day} 10:00:00.000, 40\n" for day in (1, 2, 3))
    return "name, uuid, timestamp, temperature.gpu\n" + "".join(rows)


DMON = (FIXTURES / "dmon.log").read_text()
LOGS = {
    "a month that begins like not a number": (calendar("Nov"), "nvidia-smi", 3),
    "another month": (calendar("Oct"), "nvidia-smi", 3),
    "a product with a number behind its name": (named_first("Quadro 4000"), "nvidia-smi", 3),
    "a product with a letter of Inf": (named_first("Tesla I40"), "nvidia-smi", 3),
    "a line of a script before the header": ("started 1740844800\nMay 5 2026\n" + calendar("Nov"), "nvidia-smi", 3),
    "such a line before dmon's": ("started 1740844800\n" + DMON, "dmon", 4),
}
DUMPS = {
    "type first": f"# TYPE x gauge\nDCGM_FI_DEV_GPU_TEMP{{{LABELS}}} 40 {AT_S}\n",
    "a comment that begins like dmon's header": f"# GPU of node n\nDCGM_FI_DEV_GPU_TEMP{{{LABELS}}} 40 {AT_S}\n",
    "tabs": f"DCGM_FI_DEV_GPU_TEMP{{{LABELS}}}\t40\t{AT_S}\n",
    "an exponent and an exemplar": f'DCGM_FI_DEV_GPU_TEMP{{{LABELS}}} 4e+01 {AT_S}.000 # {{a="b"}} 1\n',
    "milliseconds": f"DCGM_FI_DEV_GPU_TEMP{{{LABELS}}} 40 {AT_S}000\n",
    "promtool's, labels in capitals before the name": f'{{{LABELS}, __name__="DCGM_FI_DEV_GPU_TEMP"}} 40 {AT_S}000\n',
    "broken lines around it": f"x\x01y\nDCGM_FI_DEV_GPU_TEMP{{{LABELS}}} 40 {AT_S}\n<html>\n",
}


@pytest.mark.parametrize("name", LOGS)
def test_a_log_is_taken_for_a_log_whatever_its_cells_look_like(tmp_path: Path, name: str) -> None:
    text, kind, rows = LOGS[name]
    found = imported(tmp_path, text)
    assert (found.files[0].kind, found.files[0].rows) == (kind, rows)


@pytest.mark.parametrize("name", DUMPS)
def test_a_dump_is_taken_for_a_dump_however_it_begins(tmp_path: Path, name: str) -> None:
    found = imported(tmp_path, DUMPS[name])
    assert (found.files[0].kind, found.files[0].rows) == ("openmetrics", 1)
    assert (found.start_s, found.signals) == (AT_S, {"gpu_temperature_celsius": 1})


@pytest.mark.parametrize("text", [calendar("Nov"), named_first("Quadro 4000")])
def test_a_log_without_header_is_told_of_the_option_for_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(ImportFileError, match="--columns"):
        imported(tmp_path, text.split("\n", 1)[1])


def test_the_columns_of_a_log_that_tell_the_time_are_used(tmp_path: Path) -> None:
    assert imported(tmp_path, DMON).unused == ("dmon.mem", "dmon.pci")
    other = import_files([FIXTURES / "index_only.csv"], tmp_path / "other", ImportSpec())
    assert not {"timestamp", "index"} & {*other.unused}


def test_a_damaged_gzip_file_is_named_with_its_cure_wherever_the_damage_is(tmp_path: Path) -> None:
    whole = gzip.compress((FIXTURES / "with_units.csv").read_bytes())
    path, found = tmp_path / "log.csv.gz", []
    for at in range(2, len(whole)):  # without its first two bytes it is not known as gzip
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            assert "".join(blocks(path))
        except ImportFileError as failure:
            found.append(str(failure))
    assert all(re.search(r"log\.csv\.gz: a broken gzip file .*; copy it again", each) for each in found)
    assert sum("Error -3" in each for each in found) > 10  # zlib's own complaints
    assert len(found) > len(whole) - 40  # a time stamp, a file name and such may be anything


def test_a_gzip_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    whole = gzip.compress((FIXTURES / "with_units.csv").read_bytes())
    for length in (2, 5, 12, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.gz").write_bytes(whole[:length])
        with pytest.raises(ImportFileError, match="broken gzip file"):
            list(blocks(tmp_path / "cut.gz"))


def command(*arguments: str) -> tuple[int, str]:
    answer = CliRunner().invoke(app, ["import", *arguments], env={"COLUMNS": "200"})
    structlog.reset_defaults()
    assert answer.stdout == ""
    return answer.exit_code, answer.stderr


def test_the_command_says_in_a_line_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    text = (FIXTURES / "with_units.csv").read_bytes()
    broken = bytearray(gzip.compress(text))
    broken[100:160] = bytes(byte ^ 0xFF for byte in broken[100:160])
    with pytest.raises(zlib.error):
        gzip.decompress(broken)
    (tmp_path / "bad.csv.gz").write_bytes(broken)
    for name, cure in (("bad.csv.gz", "copy it again"), ("nofile.csv", "give a path that exists"), ("", "give a path")):
        code, told = command(str(tmp_path / name), "--out", str(tmp_path / "recording"))
        assert code == 2
        assert str(tmp_path / name) in told
        assert cure in told
        assert told.count("\n") == 1


@pytest.mark.parametrize("bad", ["Fri Dec 31 10:00:00 9999", "Mon Jan  1 00:00:00 0000", "9999/01/01 10:00:00"])
def test_a_time_beyond_all_clocks_costs_its_row_only(tmp_path: Path, bad: str) -> None:
    found = imported(tmp_path, calendar("Nov") + f"{bad}, {UUID}, 40\n")
    assert found.files[0].rows == 3
    assert found.rejected == {("row", "malformed"): 1}


MONTHS = st.sampled_from(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Xyz"])
YEAR, TWO = st.integers(0, 9999).map("{:04d}".format), st.integers(0, 99).map("{:02d}".format)
CLOCK = st.builds("{}:{}:{}".format, TWO, TWO, TWO)
ODD_TIMES = st.one_of(
    st.builds("{}/{}/{} {}.123".format, YEAR, TWO, TWO, CLOCK),
    st.builds("{}-{}-{}T{}{}{}:{}".format, YEAR, TWO, TWO, CLOCK, st.sampled_from("+-"), TWO, TWO),
    st.builds("Fri {} {} {} {}".format, MONTHS, TWO, CLOCK, YEAR),
    st.integers(0, 10**20).map(str),
    st.text(max_size=5),
)


@given(st.lists(ODD_TIMES, max_size=5), st.sampled_from(["UTC", "America/New_York", "Asia/Tokyo"]))
def test_no_time_spoils_the_times_beside_it(odd: list[str], zone: str) -> None:
    good = ["2026-10-01T10:00:00Z", "Thu Oct  1 10:00:00 2026", "1790848800"]
    cells = pa.chunked_array([pa.array([*odd, *good])])
    found = unix_seconds(cells, zone)[len(odd) :]
    np.testing.assert_array_equal(found, unix_seconds(pa.chunked_array([good]), zone))
    assert found[0] == found[2] == 1790848800


@pytest.mark.parametrize("offset", ["+99:99", "+24:00", "-05:60"])
def test_an_offset_that_no_zone_has_is_none(offset: str) -> None:
    assert np.isnan(unix_seconds(pa.chunked_array([[f"2026-10-05T10:00:00{offset}"]]), "UTC")).all()


def test_a_day_begins_with_its_midnight_and_ends_before_the_next() -> None:
    """And what comes after a day's last column lies in the first column of the next."""
    gatherer = Gatherer(60.0, lambda metric, labels: None)
    times_s = DAY_S + np.array([-60.0, -59.0, 0.0, 1.0, DAY_S - 60.0, DAY_S - 59.0, DAY_S])
    gatherer.add("m", Samples(({},), np.array([7]), times_s, np.arange(7.0)))
    found = {day: each["m"].values.tolist() for day, each in gatherer.days()}
    assert found == {0: [0.0], 1: [2.0, 3.0, 4.0], 2: [6.0]}


def test_a_server_s_own_series_do_not_crowd_out_those_of_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "MOST_SERIES", 2)
    foreign = "".join(f'apiserver_x{{i="{i}"}} 1 {AT_S}\n' for i in range(100))
    gpus = [f'DCGM_FI_DEV_GPU_TEMP{{UUID="GPU-{i}"}} 40 {AT_S}\n' for i in range(3)]
    found = imported(tmp_path, foreign + "".join(gpus[:2]))
    assert (len(found.gpus), found.rejected, found.files[0].note) == (2, {}, "")
    (tmp_path / "more").write_text(foreign + "".join(gpus))
    found = import_files([tmp_path / "more"], tmp_path / "other", ImportSpec())
    assert (len(found.gpus), found.rejected) == (2, {("row", "too_many_series"): 1})
    assert "a part of them at a time" in found.files[0].note
