"""What was learned, in the order of the GPUs that are asked for."""

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import DAY_S, Arrays, FleetHistory, align_rows
from healthsvc.forecasters.base import rows_in_state
from healthsvc.forecasters.thermal.conditions import critical_log


class Asked:
    """The state of all GPUs of a history, or of the one in `row`; newcomers are NaN."""

    def __init__(self, state: Arrays, history: FleetHistory, row: int | None = None) -> None:
        self.state = state
        gpus = history.gpus if row is None else (history.gpus[row],)
        self.rows = rows_in_state(state, gpus)
        # The level is that of the fitted day's noon, the middle of what it was measured over.
        self.age_days = float(np.clip(history.now_s / DAY_S - float(state["fitted_day"]) - 0.5, 0.0, 30.0))

    def of(self, name: str) -> NDArray[np.float64]:
        """One column of the state [gpu]."""
        return align_rows(self.state[name], self.rows).astype(np.float64)

    def critical(self, limit: str) -> NDArray[np.float64]:
        """log R* at this limit and the load and inlet that each GPU meets [gpu]."""
        return critical_log(self.of(limit), self.of("inlet_q95_celsius"), self.of("power_q95_watts"))
