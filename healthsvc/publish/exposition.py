"""The page behind /metrics: the fleet's bytes, built once a cycle, and the self-metrics, rendered at each scrape."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_GZIP = 16 + zlib.MAX_WBITS


@dataclass(frozen=True)
class _Fleet:
    """Rendered bytes, the same compressed, and the compressor that stands right behind them."""

    plain: bytes
    compressed: bytes
    compressor: Any  # zlib's compressor object has no public type
    until_s: float


def _compress(plain: bytes, until_s: float) -> _Fleet:
    compressor = zlib.compressobj(level=1, wbits=_GZIP)
    compressed = compressor.compress(plain) + compressor.flush(zlib.Z_SYNC_FLUSH)
    return _Fleet(plain, compressed, compressor, until_s)


class MetricsPage:
    """One mutable cell, swapped whole, so that a scrape sees one cycle and costs nothing.

    The fleet's families vanish once they are past `until_s` (three missed cycles): a frozen risk looks like a live one.
    The self-metrics stay.
    """

    def __init__(self, self_metrics: Callable[[], bytes]) -> None:
        self._self_metrics = self_metrics
        self._empty = _compress(b"", 0.0)
        self._fleet = self._empty

    def publish(self, fleet: bytes, until_s: float) -> None:
        """Show `fleet` until this moment of the monotonic clock."""
        self._fleet = _compress(fleet, until_s)

    def drop(self) -> None:
        """Show no fleet until the next cycle."""
        self._fleet = self._empty

    def body(self, accept_encoding: str, now_s: float) -> tuple[bytes, dict[str, str]]:
        """The page at this moment of the monotonic clock, gzip'd where the client takes it, and its headers."""
        fleet = self._fleet if now_s < self._fleet.until_s else self._empty
        own = self._self_metrics()
        headers = {"Content-Type": CONTENT_TYPE, "Vary": "Accept-Encoding"}
        if not takes_gzip(accept_encoding):
            return fleet.plain + own, headers
        # A copy of the compressor goes on from where the fleet's bytes end: one valid gzip member, fleet not redone.
        rest = fleet.compressor.copy()
        return fleet.compressed + rest.compress(own) + rest.flush(), {**headers, "Content-Encoding": "gzip"}


def takes_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header allows gzip: what it says of gzip itself, else of `*`; `q=0` refuses."""
    allowed: dict[str, bool] = {}
    for part in accept_encoding.lower().split(","):
        coding, _, parameters = part.partition(";")
        quality = parameters.replace(" ", "").removeprefix("q=")
        allowed[coding.strip()] = not quality or quality.strip("0.") != ""
    return allowed.get("gzip", allowed.get("*", False))
