"""All that is learned of one sensor of a GPU: its path against peers, its node's path, how wide intervals must be."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from healthsvc.features.medians import group_median, nan_median
from healthsvc.features.resistance import PEERS, peer_ratio
from healthsvc.fleet import Floats
from healthsvc.forecasters.thermal.crossing import conformal_scale, past_scales
from healthsvc.forecasters.thermal.node import NODE_DAMPING, NodePart, learn_node
from healthsvc.forecasters.thermal.path import PathFound, PathSpec, learn_path

Numbers = NDArray[np.float64]
BLIND_DOUBT = 0.2  # of how much a GPU differs from its peers: what a fifth of the common change leaves
DRIFTS = 0.5  # probability from which a GPU's past forecasts count as those of a drift
SHOWN = (
    "slope",
    "level_var",
    "cross_var",
    "slope_var",
    "noise",
    "persistence",
    "drift_p",
    "change_p",
    "excess",
    "days",
)
NAMES = {"slope": "slope_log_per_day", "excess": "excess_log"}


@dataclass(frozen=True)
class SensorSpec:
    """path: the drift test. season_step: what load, weather and fans move the limit by, of log R per square root of a
    day. interval_scale: by what predicted deviations are multiplied, until past forecasts say better. load_days: over
    which the load and inlet that a GPU meets are taken.
    """

    path: PathSpec
    season_step: float
    interval_scale: float
    load_days: int


@dataclass(frozen=True)
class Fleet:
    """Who is beside whom, each [gpu]: node by number, product and whether its inlet is measured by number, and whether
    none is; gap [gpu, day] of the node's peak, as `peak_gap` gives it.
    """

    node: NDArray[np.int32]
    model: NDArray[np.intp]
    blind: NDArray[np.bool_]
    gap: Numbers


@dataclass(frozen=True)
class Learned:
    """What was found of a sensor, its log R against peers [gpu, day], its node's part, and columns of a state [gpu]."""

    found: PathFound
    ratio: Numbers
    part: NodePart
    state: dict[str, Numbers]


def learn_sensor(log_r: Numbers, critical: Numbers, fleet: Fleet, spec: SensorSpec, die: NodePart | None) -> Learned:
    """log_r: daily log R; critical: log R* of the days that are like the usual peak, NaN on others; both [gpu, day].
    die: the node's part as the die's sensor told it, for any sensor but the die's own.
    """
    ratio = peer_ratio(log_r, fleet.node, fleet.blind)
    # Fans answer to an inlet that nobody measures: neither a sum nor a product takes both off a GPU unlike its peers.
    normal = nan_median(log_r)[:, None]
    unlike = np.abs(normal - group_median(normal, fleet.node, at_least=PEERS))[:, 0]
    doubt = np.where(fleet.blind, BLIND_DOUBT * np.nan_to_num(unlike), 0.0)
    found, paths = learn_path(ratio, fleet.model, doubt, spec.path)
    part = learn_node(log_r - ratio + fleet.gap, ~np.isnan(critical), spec.load_days, die)
    scale = np.full(len(ratio), spec.interval_scale)
    for number, path in paths.items():
        rows = np.flatnonzero(fleet.model == number)
        drifting = np.flatnonzero(found.drift_p[rows] >= DRIFTS)
        mine = rows[drifting]
        if not len(mine):
            continue
        level, slope = (np.nan_to_num(each[:, mine]) for each in (part.path.level, part.path.slope))
        offset = level - rolling_median(critical[mine], spec.load_days).T  # from log R against peers to the margin
        mine_path = path.take(drifting)
        foretold = replace(mine_path, level=mine_path.level + offset, slope=mine_path.slope + NODE_DAMPING * slope)
        scales = past_scales(foretold, ratio[mine] + offset.T, found.onset[mine], found.noise[mine], spec.season_step)
        scale[rows] = conformal_scale(scales, spec.interval_scale)
    state = {NAMES.get(name, name): getattr(found, name) for name in SHOWN}
    state["level_log"] = found.level + part.level
    state["node_var"] = part.level_var
    state["node_slope_log_per_day"] = part.slope
    state["interval_scale"] = scale
    state["reset_days"] = np.where(found.began > 0, ratio.shape[1] - found.began, np.nan)
    return Learned(found, ratio, part, state)


def rolling_median(values: Floats, days: int) -> Numbers:
    """Median of the last `days` up to each day [gpu, day], skipping NaN."""
    padded = np.pad(np.asarray(values, np.float64), ((0, 0), (days - 1, 0)), constant_values=np.nan)
    return np.asarray(nan_median(sliding_window_view(padded, days, axis=1)), np.float64)
