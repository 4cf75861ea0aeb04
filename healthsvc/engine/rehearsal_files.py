"""Finished rehearsals on disk, so that a long back-test that was broken off goes on where it was."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from healthsvc import __version__
from healthsvc.engine.rehearsal import Rehearsal
from healthsvc.evaluation.alert_episodes import AlertEpisode
from healthsvc.evaluation.labels import Label
from healthsvc.fleet import GpuId
from healthsvc.store import Shelf


def key_of(**what: Any) -> str:
    """Short hash of everything that a rehearsal depends on, the software's version included."""
    text = json.dumps({"version": __version__, **what}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class RehearsalFiles:
    """npz and json under `directory`, one a key; a damaged one is set aside and walked again."""

    directory: Path

    def load(self, key: str) -> Rehearsal | None:
        """The rehearsal kept under `key`, if any."""
        found = Shelf(self.directory, keep=1).load_latest(key)
        if found is None:
            return None
        arrays, _, about = found
        document = json.loads(str(arrays["document"]))
        return Rehearsal(
            window=(document["window"][0], document["window"][1]),
            gpus=tuple(GpuId(**gpu) for gpu in document["gpus"]),
            alerts=tuple(map(_alert, document["alerts"])),
            samples_s=arrays["samples_s"],
            probability=arrays["probability"],
            baselines={name: tuple(map(_alert, alerts)) for name, alerts in document["baselines"].items()},
            labels=tuple(Label(**label) for label in document["labels"]),
            observed_s=float(about["observed_s"]),
        )

    def save(self, key: str, rehearsal: Rehearsal) -> None:
        """Keep it. Raises StoreError if the disk refuses."""
        document = {
            "window": rehearsal.window,
            "gpus": [asdict(gpu) for gpu in rehearsal.gpus],
            "alerts": [_plain(alert) for alert in rehearsal.alerts],
            "baselines": {name: [_plain(a) for a in alerts] for name, alerts in rehearsal.baselines.items()},
            "labels": [{f.name: getattr(label, f.name) for f in fields(label)} for label in rehearsal.labels],
        }
        arrays = {
            "document": np.array(json.dumps(document)),
            "samples_s": rehearsal.samples_s,
            "probability": rehearsal.probability,
        }
        about = {"observed_s": rehearsal.observed_s}
        Shelf(self.directory, keep=1).save(key, arrays, rehearsal.window[1], about)


def _plain(alert: AlertEpisode) -> dict[str, Any]:
    return {f.name: getattr(alert, f.name) for f in fields(alert)} | {"members": sorted(alert.members)}


def _alert(row: Mapping[str, Any]) -> AlertEpisode:
    return AlertEpisode(**{**row, "members": frozenset(row["members"])})
