"""What the service says about itself. Its own registry: importing this module registers nothing anywhere."""

import math
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from healthsvc import __version__

STAGES = ("read", "ledger", "cycle", "train", "shelf", "journal", "late_day")  # that may fail
OUTCOMES = ("sent", "refused", "failed")
STAGE_BUCKETS_S = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class SelfMetrics:
    """Typed verbs over prometheus_client; `render` gives the text.

    reasons: why samples may be rejected. Every counter is there from the start, at 0: one that is born at its first
    count has no increase. What has not been measured yet is NaN.
    """

    def __init__(self, version: str = __version__, reasons: Iterable[str] = ()) -> None:
        # For the whole process: a *_created series beside each counter tells nobody anything. It has no types.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()
        self._report_timestamp = Gauge(
            "healthsvc_report_timestamp_seconds", "Data time of the newest report.", registry=registry
        )
        self._cycle_duration = Histogram(
            "healthsvc_cycle_duration_seconds",
            "Duration of one stage of a cycle.",
            ["stage"],
            buckets=STAGE_BUCKETS_S,
            registry=registry,
        )
        self._failures = Counter(
            "healthsvc_failures_total", "Cycles and sends that failed.", ["stage"], registry=registry
        )
        self._samples_read = Counter("healthsvc_samples_read_total", "Samples read.", registry=registry)
        self._source_warnings = Counter(
            "healthsvc_source_warnings_total", "Warnings in the answers of the source.", registry=registry
        )
        self._samples_rejected = Counter(
            "healthsvc_samples_rejected_total", "Samples that are no measurement.", ["reason"], registry=registry
        )
        self._incomplete_reads = Counter(
            "healthsvc_incomplete_reads_total",
            "Reads of which the source said that something is missing.",
            registry=registry,
        )
        self._left_out = Gauge(
            "healthsvc_training_left_out_ratio",
            "Share of the days with samples that the last training left out as incomplete.",
            registry=registry,
        )
        self._signal_missing = Gauge(
            "healthsvc_signal_missing_ratio", "Share of GPUs without the signal.", ["signal"], registry=registry
        )
        self._alerts_sent = Counter(
            "healthsvc_alerts_sent_total", "Alerts pushed to Alertmanager.", ["outcome"], registry=registry
        )
        Gauge("healthsvc_build_info", "Version; 1.", ["version"], registry=registry).labels(version).set(1)
        for counter, words in (
            (self._failures, STAGES),
            (self._samples_rejected, reasons),
            (self._alerts_sent, OUTCOMES),
        ):
            for word in words:
                counter.labels(word)
        for gauge in (self._report_timestamp, self._left_out):
            gauge.set(math.nan)

    def report_made(self, as_of_s: float) -> None:
        """A report for data time `as_of_s` is out."""
        self._report_timestamp.set(as_of_s)

    def stage_took(self, stage: str, seconds: float) -> None:
        """One stage of a cycle has run."""
        self._cycle_duration.labels(stage).observe(seconds)

    def failed(self, stage: str) -> None:
        """A stage failed."""
        self._failures.labels(stage).inc()

    def samples_read(self, count: int, warnings: int = 0) -> None:
        """A read gave `count` samples and `warnings` warnings."""
        self._samples_read.inc(count)
        self._source_warnings.inc(warnings)

    def samples_rejected(self, reason: str, count: int) -> None:
        """`count` samples were no measurement, for this reason (a word of telemetry.source.REASONS)."""
        self._samples_rejected.labels(reason).inc(count)

    def read_was_incomplete(self) -> None:
        """The source said of a read that something is missing."""
        self._incomplete_reads.inc()

    def training_left_out(self, ratio: float) -> None:
        """The last training left out this share of the days."""
        self._left_out.set(ratio)

    def signal_missing(self, signal: str, ratio: float) -> None:
        """This share of the GPUs lacks `signal`."""
        self._signal_missing.labels(signal).set(ratio)

    def alerts_sent(self, outcome: str, count: int = 1) -> None:
        """`count` alerts went out with this outcome."""
        self._alerts_sent.labels(outcome).inc(count)

    def render(self) -> bytes:
        """Text format 0.0.4."""
        return generate_latest(self.registry)
