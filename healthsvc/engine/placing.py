"""Where things stand, from whoever tells: topology.csv layer by layer before the labels of a source's series."""

from collections.abc import Mapping
from functools import lru_cache

from healthsvc.fleet import GpuId, Placement, PlaceSeries, Same, Signal, at_nodes
from healthsvc.telemetry.source import Source


def placed(given: Placement | None, source: Source) -> Placement | None:
    """`given`, and for what it leaves open what the source has learned by now."""
    told = source.placement()
    if given is None:
        return told
    return given if told is None or told is given else _over(Same(given), Same(told))


@lru_cache(maxsize=4)
def _over(given: Same[Placement], told: Same[Placement]) -> Placement:
    """Worked out once as long as neither changes: it is asked for every cycle."""
    return given.it.over(told.it)


@lru_cache(maxsize=4)
def _hosts(fleet: Same[tuple[GpuId, ...]]) -> tuple[str, ...]:
    return tuple(sorted({gpu.hostname for gpu in fleet.it if gpu.hostname}))


def at_known_nodes(
    environment: Mapping[Signal, PlaceSeries], gpus: tuple[GpuId, ...], placement: Placement | None
) -> dict[Signal, PlaceSeries]:
    """The series of nodes under the names that the GPUs' hosts have."""
    if not any(series.layer == "node" for series in environment.values()):
        return dict(environment)
    controllers = {
        places["bmc"]: host
        for host, places in (placement.by_hostname if placement else {}).items()
        if places.get("bmc")
    }
    hosts = _hosts(Same(gpus))
    return {
        signal: at_nodes(series, hosts, controllers) if series.layer == "node" else series
        for signal, series in environment.items()
    }
