"""Whatever comes in, framing gives a grid: a rejection by name, never a crash, never a number no hardware can have.

A short run with the tests, five minutes as a drill. A page that breaks anything is written to data/fixtures/fuzz, where
all later runs begin; so are the pages that once did.
"""

import random
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from healthsvc.fleet import Signal
from healthsvc.telemetry.catalogue import ENVIRONMENT_ROWS, GPU_ROWS, EnvironmentRow, Row, rows_in
from healthsvc.telemetry.decode import MalformedAnswerError, Samples, decode_points, decode_samples
from healthsvc.telemetry.exposition import Reader
from healthsvc.telemetry.framing.framer import Framer
from healthsvc.telemetry.framing.grid import frame
from healthsvc.telemetry.framing.hygiene import PLAUSIBLE
from healthsvc.telemetry.framing.read_memory import ReadMemory
from healthsvc.telemetry.source import REASONS, RawGrid
from tests.telemetry.framed import EXPOSITIONS, ROOT
from tests.telemetry.scrapes import devices_of, parse

CORPUS = ROOT / "data" / "fixtures" / "fuzz"
ODD_TIMES = (0.0, -1.0, 1e300, np.inf, -np.inf, np.nan, 5e-324, 599.9999, 600.0, 600.0001)
ODD_VALUES = (0.0, -0.0, np.nan, np.inf, -np.inf, 2.0**63, 2.0**47, 2147483632.0, 1e308, -1e308, 5e-324, 345.0, 1.0)
ODD_LABELS = ("", "GPU-", "MIG-GPU-/1/0", "GPU-" + "0" * 40, "a\nb", '"', "ß\udcff", "x" * 20_000, "[N/A]")
PIECES = ("{", "}", '"', "\\", ",", "=", " ", "\n", "#", "\x00", "NaN", "+Inf", "1e999", "9" * 400, "_", "\u2028", "é")
ROWS: tuple[Row | EnvironmentRow, ...] = (*GPU_ROWS, *ENVIRONMENT_ROWS)
TIMES = np.arange(1.0, 11) * 60.0


def check(raw: RawGrid, gpus: int) -> None:
    """What holds for every grid."""
    for signal, values in raw.values.items():
        assert values.shape == (gpus, len(raw.times_s))
        low, high = PLAUSIBLE.get(signal, (-np.inf, np.inf))
        known = values[~np.isnan(values)]
        assert ((known >= low) & (known <= high)).all(), signal
    assert {reason for _, reason in raw.rejected} <= set(REASONS)
    assert min(raw.rejected.values(), default=1) > 0
    window, _ = frame(raw)
    assert Signal.DRIVER_RELOADS not in window.values or Signal.ENERGY in raw.values


def mutated(text: str, rng: random.Random) -> str:
    """A page with a few places changed, moved or doubled."""
    for _ in range(rng.randint(1, 12)):
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.choice((0, 1, 1, 3, 40)))
        fill = rng.choice((*PIECES, text[end : end + rng.randint(0, 200)], "".join(rng.choices("09.e-+xXgG", k=5))))
        text = text[:at] + fill + text[end:]
    return text


def frame_page(text: str) -> None:
    """One page as a scrape, and as one of a history."""
    shown = parse(text, 600.0)
    gpus = devices_of(shown.samples)
    framer = Framer(gpus, TIMES, 60.0, ReadMemory(), now_s=700.0)
    for row in rows_in(shown.samples):
        framer.take(row, shown.samples[row.metric])
    check(framer.grid(0, ()), len(gpus))
    reader = Reader()
    reader.read(text)
    reader.take()


def any_samples(rng: random.Random) -> Samples:
    """Series of any labels, times and values."""
    counts = [rng.choice((0, 1, 2, 3, 9)) for _ in range(rng.randint(0, 5))]
    labels = []
    for _ in counts:
        names = ("UUID", "uuid", "gpu_uuid", "gpu", "Hostname", "xid", "pod", "gpu_id", "hw_type", "err_code")
        usual = {"UUID": f"GPU-0000000{rng.choice('ab')}-0000-0000-0000-000000000000"}
        odd = {name: rng.choice((*ODD_LABELS, "79", "0")) for name in rng.sample(names, rng.randint(0, 4))}
        labels.append({**usual, **odd})
    total, usual_times = sum(counts), rng.random() < 0.5
    times = [60.0 * (k + 1) if usual_times else rng.choice((*ODD_TIMES, rng.uniform(0, 700))) for k in range(total)]
    values = [rng.choice((*ODD_VALUES, rng.uniform(0, 100), float(rng.randint(0, 10**13)))) for _ in range(total)]
    return Samples(tuple(labels), np.array(counts, np.int64), np.array(times, float), np.array(values, float))


def frame_arrays(rng: random.Random) -> None:
    """Any arrays as answers to any rows, in any order and several reads."""
    memory = ReadMemory()
    for _ in range(rng.randint(1, 3)):
        answers = [(rng.choice(ROWS), any_samples(rng)) for _ in range(rng.randint(1, 6))]
        gpus = devices_of({str(i): each for i, (_, each) in enumerate(answers)})
        columns = rng.choice((1, 2, 10))
        framer = Framer(gpus, TIMES[:columns], 60.0, memory, now_s=rng.choice((np.inf, 600.0)))
        for row, each in answers:
            first = rng.randrange(columns)
            framer.take(row, each, rng.choice((slice(None), slice(first, columns))))
        check(framer.grid(0, ()), len(gpus))


def decode_body(body: bytes) -> None:
    for decode in (decode_samples, decode_points):
        try:
            decode(body)
        except MalformedAnswerError:
            continue


BODIES = (
    b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":"b"},"values":[[1,"2"],[3,"4"]]}]}}',
    b'{"status":"success","isPartial":true,"data":{"resultType":"vector","result":[{"metric":{},"value":[1,"NaN"]}]}}',
)


def attempt(run: Callable[[], None], name: str, content: str) -> None:
    """Keeps what breaks."""
    try:
        run()
    except BaseException:
        (CORPUS / name).write_text(content, "utf-8", "surrogateescape", newline="")
        raise


def fuzz(seconds: float, seed: int) -> int:
    """How many inputs were tried."""
    rng, tried, until = random.Random(seed), 0, time.monotonic() + seconds
    pages = [path.read_text("utf-8", "surrogateescape") for path in _pages()]
    while time.monotonic() < until:
        page, arrays = mutated(rng.choice(pages), rng), rng.randrange(2**32)
        attempt(lambda page=page: frame_page(page), f"page-{tried}.prom", page)  # type: ignore[misc]
        attempt(lambda arrays=arrays: frame_arrays(random.Random(arrays)), f"arrays-{arrays}.seed", str(arrays))  # type: ignore[misc]
        body = mutated(rng.choice(BODIES).decode(), rng)
        attempt(lambda body=body: decode_body(body.encode("utf-8", "replace")), f"body-{tried}.json", body)  # type: ignore[misc]
        tried += 3
    return tried


def _pages() -> list[Path]:
    return sorted([*EXPOSITIONS.glob("*.prom"), *CORPUS.glob("*.prom")])


def test_a_few_seconds_of_anything_break_nothing() -> None:
    assert fuzz(4.0, seed=1) > 50


@pytest.mark.drill
@pytest.mark.timeout(600)
def test_five_minutes_of_anything_break_nothing() -> None:
    assert fuzz(300.0, seed=time.time_ns()) > 1000


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_what_once_broke_it_breaks_it_no_more(path: Path) -> None:
    text = path.read_text("utf-8", "surrogateescape")
    if path.suffix == ".seed":
        frame_arrays(random.Random(int(text)))
    elif path.suffix == ".json":
        decode_body(text.encode("utf-8", "replace"))
    else:
        frame_page(text)
