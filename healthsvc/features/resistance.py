"""Thermal resistance against peers, and how much of a rise a GPU shares with its node and its loop.

A rise of one GPU stands out against its node. What all GPUs of a node share, or all nodes of a loop, cancels in that
ratio: it is measured here level by level, so that together they miss only what the whole fleet shares. From the ledger
thermal_trend does so once a day, from the last quarter of an hour (`place_findings`) incidents do.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.daily import ASSUMED_INLET_CELSIUS, FLOOR_CORRECTION_CELSIUS, POWER_FLOOR, STEADY_RANGE
from healthsvc.features.medians import group_count, group_median, nan_max, nan_mean, nan_median
from healthsvc.features.windows import inlet_by_gpu
from healthsvc.fleet import DailyLedger, FleetHistory, FleetWindow, Floats, Signal, Topology
from healthsvc.fleet.causes import ThermalCause

Numbers = NDArray[np.float64]
ROUNDS = 3  # of medians over days and over GPUs, by turns
PEERS = 3  # observed GPUs that a node needs before its median means anything
LEAST_SHARE = 0.1  # of R, whatever the node has in common
NODES = 2  # observed nodes that a loop needs, likewise
SETTLED_S = 900.0  # three time constants of a cold plate or heat sink (4 to 5 minutes)
NORMAL_DAYS = 14  # days of the ledger that say what is normal
CLEAR_SHIFT = 0.06  # of log R: six times the noise of a day, and far above what fans do by themselves
WARM_CELSIUS = 3.0


def peer_ratio(log_r: Floats, node: NDArray[np.int32], blind: NDArray[np.bool_] | None = None) -> Numbers:
    """log R less what its node has in common that day, of the same level over all days as log R [gpu, day].

    A GPU whose node has fewer than three GPUs keeps its own log R. The choice is made per GPU and not per day, so that
    a day with few observed peers is missing, not a step.

    What fans and flow do multiplies R. An inlet that is not measured adds to it, the same to every GPU of the node: so
    for GPUs that are `blind` [gpu] to their inlet the common part is taken off as a difference of R.
    """
    has_peers = (group_count(np.ones(len(node), bool), node) >= PEERS)[:, None]
    ratio: Numbers = np.where(has_peers, log_r - common_part(log_r, node), log_r)
    if blind is None or not blind.any():
        return ratio
    r = np.exp(log_r)
    left = r - common_part(r, node)
    additive = np.log(np.maximum(left, LEAST_SHARE * r))
    return np.where(has_peers & blind[:, None], additive, ratio)


def common_part(values: Floats, node: NDArray[np.int32]) -> Numbers:
    """What moves all GPUs of a node alike, about its median over the days [gpu, day]; NaN with fewer than 3 observed.

    By turns how each GPU differs from its node, over all days, and the median of the node without that (Tukey's median
    polish): GPUs differ by some percent, and a median of levels would jump with who is observed. It begins with the
    node, so that a day's weather or jobs leave nothing in the ratio, however long they last; a GPU's distance from its
    own median would still know of them. What one GPU has had since ever moves its peers the less the more rounds.
    """
    day = group_median(values, node, at_least=PEERS)
    for _ in range(ROUNDS):
        day = group_median(values - nan_median(values - day)[:, None], node, at_least=PEERS)
    return np.asarray(day - nan_median(day)[:, None], np.float64)


def peak_gap(daily: DailyLedger, node: NDArray[np.int32]) -> Numbers:
    """log R at the day's peak of temperature less the day's median log R, the node's median [gpu, day].

    Fans and flow answer to heat, so that at the peak resistance is lower than at median load. The node's median, since
    a GPU that is held at its limit has no higher peak to show. NaN with fewer than three GPUs observed.
    """
    rise = daily.get("gpu_temperature_q95_celsius") - daily.get("inlet_q95_celsius")
    power = daily.get("power_q95_watts")
    known = (rise > 1.0) & (power > 0)
    peak = np.log(np.where(known, rise, 1.0)) - np.log(np.where(known, power, 1.0))
    gap = np.where(known, peak - daily.get("gpu_log_resistance"), np.nan)
    return group_median(gap, node, at_least=PEERS).astype(np.float64)


@dataclass(frozen=True)
class Shifts:
    """log R above normal, split by who shares it, each [gpu]; gpu + node + loop is the whole. NaN = not observed.

    A node with fewer than 3 observed GPUs has no shift of its own (0), a loop with fewer than 2 such nodes neither.
    """

    gpu: Numbers
    node: Numbers
    loop: Numbers


def split_shifts(excess: Numbers, topology: Topology, loop_layer: str = "cooling_loop") -> Shifts:
    """excess: log R above each GPU's own normal [gpu]. Medians, so less than half of the members cannot feign a fault.

    Blind to what the whole fleet shares, which is in `loop`, and to which of two loops is the odd one.
    """
    gpus = len(excess)
    node, loop = topology.group("node", gpus), topology.group(loop_layer, gpus)
    by_node = group_median(excess[:, None], node, at_least=PEERS)[:, 0]
    by_loop = group_median(_one_voice_a_node(by_node, node)[:, None], loop, at_least=NODES)[:, 0]
    shared = np.where(np.isnan(by_node), 0.0, by_node)
    common = np.where(np.isnan(by_loop), 0.0, by_loop)
    of_node = np.where(np.isnan(by_node), 0.0, shared - common)
    return Shifts(excess - common - of_node, of_node, common)


def widest_cooled(topology: Topology) -> str:
    """The layer whose places are cooled together: cooling_loop where any is known, else rack."""
    loops = topology.groups.get("cooling_loop")
    return "cooling_loop" if loops is not None and (loops >= 0).any() else "rack"


def _one_voice_a_node(by_node: Floats, node: NDArray[np.int32]) -> Numbers:
    """by_node [gpu] at the first GPU of each node, NaN at the others: or a large node would outvote the rest."""
    first = np.full(len(node), np.nan)
    _, leaders = np.unique(node, return_index=True)
    first[leaders] = by_node[leaders]
    return first


def settled_log_resistance(window: FleetWindow, inlet: Floats) -> Numbers:
    """log((T + 0.5 - T_in) / P) over the newest quarter of an hour [gpu], throttled or not; inlet [gpu, time].

    NaN where power moved by 15 % of its mean in that time, was below 0.35 of its limit, or anything is not measured:
    after a change of load the heat sink still remembers the old one. A GPU held at its limit is measured: its
    temperature stands still, its power falls, and the resistance shows.
    """
    columns = slice(-max(round(SETTLED_S / window.step_s), 1), None)
    recent = window.columns(columns)
    power, temperature = recent.get(Signal.POWER), recent.get(Signal.GPU_TEMPERATURE)
    mean = nan_mean(power)
    limit = window.last(Signal.POWER_LIMIT).astype(np.float64)
    steady = nan_max(power) + nan_max(-power) < STEADY_RANGE * mean
    busy = mean > POWER_FLOOR * np.where(np.isnan(limit), nan_max(window.get(Signal.POWER)), limit)
    third = slice(-max(power.shape[1] // 3, 1), None)
    rise = nan_mean(temperature[:, third] - inlet[:, columns][:, third]) + FLOOR_CORRECTION_CELSIUS
    valid = steady & busy & (rise > 1.0)
    return np.where(valid, np.log(np.where(valid, rise, 1.0) / np.where(valid, nan_mean(power[:, third]), 1.0)), np.nan)


@dataclass(frozen=True)
class PlaceFindings:
    """What the last quarter of an hour says of each GPU's place, each [gpu].

    cause: a ThermalCause, of the widest level that is clearly above normal. inlet_rise_celsius: above the ledger's.
    """

    shifts: Shifts
    inlet_rise_celsius: Numbers
    cause: NDArray[np.int8]


def place_findings(history: FleetHistory, inlet: Floats, ago_s: float = 0.0) -> PlaceFindings:
    """Node- and loop-level resistance against the ledger's last two weeks; inlet [gpu, time] of `recent`.

    ago_s: as it would have been found so long ago. Where no loop is known, racks stand in for loops. Where no inlet is
    measured, a warm room looks like resistance: such GPUs never speak for their loop, and for their node only while at
    least three nodes of the loop are observed and the loop as a whole stands still. Blind until a quarter of an hour
    of steady load has passed, to a fault that was there for two weeks, and to GPUs whose inlet sensor has come or gone.
    """
    normal, warm, was_measured = history.once("normal_resistance", _normal)
    until = max(len(history.recent.times_s) - round(ago_s / history.recent.step_s), 0)
    window, inlet = history.recent.columns(slice(None, until)), inlet[:, :until]
    blind = np.asarray(np.isnan(inlet).all(axis=1), bool)
    believed = np.where(blind[:, None], np.float32(ASSUMED_INLET_CELSIUS), inlet) if blind.any() else inlet
    # The ledger's resistance is of another inlet, an assumed one, where the sensor was not there.
    unlike = np.where(blind, was_measured > 0.5, was_measured < 0.5)
    excess = np.where(unlike, np.nan, settled_log_resistance(window, believed) - normal)
    shifts = split_shifts(excess, history.topology, widest_cooled(history.topology))
    rise = nan_median(inlet[:, -max(round(SETTLED_S / window.step_s), 1) :]).astype(np.float64) - warm
    told = _measured(shifts, blind, excess, history.topology) if blind.any() else shifts
    return PlaceFindings(shifts, rise, attribute(told, rise))


def findings_of(history: FleetHistory) -> PlaceFindings:
    """place_findings of this moment with the inlet as it is measured, worked out once a history."""
    return history.once("place_findings", lambda now: place_findings(now, measured_inlet(now)))


def measured_inlet(history: FleetHistory) -> Floats:
    """The measured inlet of each GPU over `recent` [gpu, time], NaN where there is none; once a history."""
    return history.once(
        "measured_inlet",
        lambda now: inlet_by_gpu(now.environment, now.topology, now.gpus, len(now.recent.times_s)),
    )


def _normal(history: FleetHistory) -> tuple[Numbers, Numbers, Numbers]:
    """Medians over the ledger's last two finished weeks, each [gpu]: log R, warm inlet, share of it measured."""
    daily = history.daily
    finished = slice(None, -1) if daily.unfinished else slice(None)

    def median(name: str) -> Numbers:
        return nan_median(daily.get(name)[:, finished][:, -NORMAL_DAYS:]).astype(np.float64)

    return median("gpu_log_resistance"), median("inlet_q95_celsius"), median("inlet_measured_ratio")


def _measured(shifts: Shifts, blind: NDArray[np.bool_], excess: Numbers, topology: Topology) -> Shifts:
    """The shifts without what GPUs that are blind to their inlet [gpu] cannot tell from a warm room."""
    node, loop = topology.group("node", len(blind)), topology.group(widest_cooled(topology), len(blind))
    observed = group_count(~np.isnan(excess), node) >= PEERS
    nodes = group_count(~np.isnan(_one_voice_a_node(np.where(observed, 0.0, np.nan), node)), loop)
    still = (nodes > NODES) & (np.abs(shifts.loop) < CLEAR_SHIFT)
    return Shifts(shifts.gpu, np.where(blind & ~still, 0.0, shifts.node), np.where(blind, 0.0, shifts.loop))


def attribute(
    shifts: Shifts,
    inlet_rise_celsius: Numbers,
    own: NDArray[np.int8] | None = None,
    blind: NDArray[np.bool_] | None = None,
) -> NDArray[np.int8]:
    """The cause that each GPU's shifts speak for [gpu], ThermalCause.NONE where nothing stands out.

    Warmer supply with resistance as it was is the facility; a GPU's own path outranks that, all of a node - airflow or
    branch - outranks its GPUs, and all nodes of a loop - flow - its nodes. own: what is known better of each GPU's own
    path than its shift tells. blind: no inlet is measured [gpu], so that a warm room looks like a node or loop that
    resists more: it speaks for neither.
    """
    # Comparisons with NaN are false: what is not observed stands for nothing.
    told = np.ones(len(shifts.gpu), bool) if blind is None else ~blind
    if own is None:
        own = np.where(shifts.gpu >= CLEAR_SHIFT, ThermalCause.THERMAL_PATH, ThermalCause.NONE).astype(np.int8)
    cause = np.where(inlet_rise_celsius >= WARM_CELSIUS, ThermalCause.SUPPLY_WARM, ThermalCause.NONE).astype(np.int8)
    cause[own != ThermalCause.NONE] = own[own != ThermalCause.NONE]
    cause[(shifts.node >= CLEAR_SHIFT) & told] = ThermalCause.NODE_AIRFLOW
    cause[(shifts.loop >= CLEAR_SHIFT) & told] = ThermalCause.LOOP_FLOW
    return cause
