"""The walk through the past: what stands in its way, and what must not."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from healthsvc.engine.digest import digest_day
from healthsvc.engine.historian import Historian
from healthsvc.engine.progress import Silent
from healthsvc.features.daily import definitions
from healthsvc.fleet import DAY_S, EventLog, GpuId
from healthsvc.store import Ledger
from healthsvc.telemetry.source import RawGrid, SourceError
from tests.engine.recordings import START_DAY, START_S, STEP_S, settings_for
from tests.engine.sources import ArraySource, steady_source
from tests.histories import make_gpus

NOW_S = START_S + 4 * DAY_S


@dataclass
class RefusingSource(ArraySource):
    """Refuses the first two days; asked: how often it had to."""

    asked: int = 0

    def read(
        self, times_s: NDArray[np.float64], gpus: Sequence[GpuId] | None = None, step_s: float | None = None
    ) -> RawGrid:
        if times_s[0] < START_S + 1.5 * DAY_S:
            self.asked += 1
            raise SourceError(self.name, "is busy", "Wait")
        return super().read(times_s, gpus, step_s)


def historian_of(source: ArraySource, ledger: Ledger) -> Historian:
    settings = settings_for(ledger.directory)
    return Historian(settings, source, None, ledger, Silent(), lambda raw: None, lambda *_: None, lambda: False)


def test_days_that_were_only_to_be_read_again_do_not_stand_in_the_way(tmp_path: Path) -> None:
    """Of two the source had given a part, and now it refuses them; one refusal is enough to know. What is missing
    altogether is waited for."""
    whole = steady_source(make_gpus(4), START_S, NOW_S, STEP_S)
    source, ledger = RefusingSource(**vars(whole)), Ledger(tmp_path, definitions())
    other = Ledger(tmp_path / "other", definitions())
    for day in (START_DAY, START_DAY + 1):
        row = digest_day(whole, other, day, NOW_S, STEP_S, 256, None)
        assert row is not None
        ledger.write_day(day, row, EventLog(), NOW_S, complete=False)
    historian = historian_of(source, ledger)
    historian.walk(NOW_S)
    assert ledger.days() == [START_DAY + day for day in range(4)]
    assert ledger.partial_days(START_DAY, START_DAY + 3) == {START_DAY, START_DAY + 1}
    assert source.asked == 1
    with pytest.raises(SourceError, match="is busy"):
        replace(historian, ledger=Ledger(tmp_path / "fresh", definitions())).walk(NOW_S)
