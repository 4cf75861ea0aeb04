"""What the fleet is asked to do: jobs that occupy whole nodes, and the power they would draw if nothing held them."""

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from healthsvc.simulator.layout import Layout
from healthsvc.simulator.series import Array, Wander
from healthsvc.simulator.spec import Spec

TDP_WATTS = 700.0
IDLE_WATTS = 75.0
JOB_SIGMA = 0.9  # of the log duration: most jobs take hours, some take days


class WorkloadSpec(Spec):
    """How busy the nodes are and how hard the jobs work."""

    duty_ratio: float = Field(0.9, gt=0, le=1, description="share of time that a node runs a job")
    job_hours: float = Field(10.0, ge=0.5, le=240, description="median duration of a job")
    level_min_ratio: float = Field(0.5, ge=0.2, le=1, description="power of the lightest job, share of TDP")
    level_max_ratio: float = Field(0.98, ge=0.2, le=1, description="power of the heaviest job, share of TDP")
    noise_ratio: float = Field(0.015, ge=0, le=0.2, description="deviation of the per-minute power noise")


class Workload:
    """All jobs of the run, drawn once: for each job its node, first and last moment, level and memory intensity."""

    def __init__(self, spec: WorkloadSpec, layout: Layout, span_s: float, step_s: float, rng: np.random.Generator):
        self.layout = layout
        timing, strength, noise, idle = rng.spawn(4)
        node, start, end = _schedule(spec, len(layout.nodes), span_s, timing)
        self._node, self._start_s, self._end_s = node, start, end
        reach = spec.level_max_ratio - spec.level_min_ratio
        self._level = TDP_WATTS * (spec.level_min_ratio + reach * strength.beta(2.5, 1.3, len(node)))
        self._memory = strength.uniform(0.85, 1.1, len(node))
        self._share = strength.normal(1.0, 0.01, layout.spec.gpus)[:, None]  # no two GPUs draw quite the same
        self._noise = Wander(noise, layout.spec.gpus, float(np.exp(-step_s / 180.0)), spec.noise_ratio)
        self._idle = Wander(idle, layout.spec.gpus, 0.5, 0.01)

    def draw(self, elapsed_s: Array) -> tuple[Array, NDArray[np.bool_], Array]:
        """Wanted power in watts, whether busy, memory intensity (1 = typical), each [gpu, time]."""
        level = np.zeros((len(self.layout.nodes), len(elapsed_s)))
        memory = np.ones_like(level)
        here = (self._end_s > elapsed_s[0]) & (self._start_s <= elapsed_s[-1])
        for job in np.flatnonzero(here):
            first, last = np.searchsorted(elapsed_s, (self._start_s[job], self._end_s[job]))
            level[self._node[job], first:last] = self._level[job]
            memory[self._node[job], first:last] = self._memory[job]
        rows = self.layout.node_of
        busy = level[rows] > 0
        wanted = level[rows] * self._share * (1.0 + self._noise.draw(len(elapsed_s)))
        idle = IDLE_WATTS * (1.0 + self._idle.draw(len(elapsed_s)))
        return np.where(busy, np.clip(wanted, idle, TDP_WATTS), idle), busy, memory[rows]


def _schedule(
    spec: WorkloadSpec, nodes: int, span_s: float, rng: np.random.Generator
) -> tuple[NDArray[np.intp], Array, Array]:
    """Jobs and pauses by turns on each node, until the run is over: node, start and end of each job."""
    mean_job_s = 3600.0 * spec.job_hours * np.exp(JOB_SIGMA**2 / 2)
    mean_pause_s = mean_job_s * (1.0 - spec.duty_ratio) / spec.duty_ratio
    jobs: list[tuple[int, float, float]] = []
    for node in range(nodes):
        now = -rng.uniform(0.0, mean_job_s)
        while now < span_s:
            end = now + 3600.0 * spec.job_hours * float(np.exp(rng.normal(0.0, JOB_SIGMA)))
            jobs.append((node, now, end))
            now = end + rng.exponential(1.0) * mean_pause_s
    table = np.array(jobs)
    return table[:, 0].astype(np.intp), table[:, 1], table[:, 2]
