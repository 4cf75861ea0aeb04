"""The shelf: what forecasters learned, as plain arrays with their origin beside them. Never pickle."""

import hashlib
import io
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from healthsvc.fleet import Arrays, frozen_array
from healthsvc.store.atomic import set_aside, write_atomically
from healthsvc.store.errors import store_error

FORMAT_VERSION = 1
_CURE = "Nothing to do: the training before is used, and the next one writes a new file"


@dataclass(frozen=True)
class Shelf:
    """`models/<name>/<time of training>.npz` with a `.json` of the same name beside it, the newest `keep` of them.

    The .json is written last and holds the sha256 of the arrays: without it a training does not count. Methods raise
    StoreError when the disk refuses. Blind to whether the arrays still suit the forecaster: whoever loads them compares
    the spec they were saved with.
    """

    directory: Path
    keep: int = 3

    def save(self, name: str, arrays: Arrays, trained_at_s: float, spec: Mapping[str, Any]) -> None:
        """Keep one training. `spec` holds the hyper-parameters, as JSON can say them.

        Raises ValueError for arrays of objects: reading them would take pickle, which runs whatever is in the file.
        """
        for key, array in arrays.items():
            if key in ("file", "allow_pickle"):  # parameters of np.savez itself
                raise ValueError(f"{name}.{key}: not a possible name of an array; rename it")
            if array.dtype.hasobject:
                raise ValueError(f"{name}.{key}: an array of objects cannot be kept; use numbers, or text as dtype str")
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        data = buffer.getvalue()
        about = {
            "format_version": FORMAT_VERSION,
            "trained_at_s": trained_at_s,
            "spec": dict(spec),
            "arrays": {key: [str(array.dtype), list(array.shape)] for key, array in arrays.items()},
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        text = json.dumps(about, indent=1)
        npz = self._folder(name) / f"{datetime.fromtimestamp(trained_at_s, UTC):%Y%m%dT%H%M%SZ}.npz"
        with write_atomically(npz) as temporary:
            temporary.write_bytes(data)
        with write_atomically(npz.with_suffix(".json")) as temporary:
            temporary.write_text(text)
        self._prune(name, keep_also=npz.stem)

    def load_latest(self, name: str, not_after_s: float = math.inf) -> tuple[Arrays, float, Mapping[str, Any]] | None:
        """(arrays, trained_at_s, spec) of the newest training that is whole, read-only; None if there is none.

        spec is as JSON gives it back: a tuple that was saved is a list, and a key is text.

        Trainings after `not_after_s` are passed over, so that a replay of the past does not know its future. A damaged
        one is set aside with a warning and the one before it is used.
        """
        for sheet in sorted(self._folder(name).glob("*.json"), reverse=True):
            try:
                about = json.loads(sheet.read_bytes())
                if about["trained_at_s"] > not_after_s:
                    continue
                return _arrays(sheet.with_suffix(".npz").read_bytes(), about), about["trained_at_s"], about["spec"]
            except FileNotFoundError as failure:
                why = f"{Path(failure.filename).name} is gone"
            except OSError as failure:
                raise store_error(sheet, failure) from failure
            except (ValueError, KeyError, TypeError) as failure:
                why = str(failure)
            self._set_aside(sheet, why)
        return None

    def _folder(self, name: str) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
            raise ValueError(f"shelf name {name!r}: use letters, digits, '_', '-' and '.', as in 'thermal_trend'")
        return Path(self.directory) / "models" / name

    def _set_aside(self, sheet: Path, why: str) -> None:
        for path in (sheet, sheet.with_suffix(".npz")):
            if path.exists():
                set_aside(path, why, _CURE)

    def _prune(self, name: str, keep_also: str) -> None:
        stems = sorted({p.stem for p in self._folder(name).iterdir() if p.suffix in (".npz", ".json")})
        for stem in set(stems[: -self.keep]) - {keep_also}:
            for path in (self._folder(name) / f"{stem}.json", self._folder(name) / f"{stem}.npz"):
                try:
                    path.unlink(missing_ok=True)
                except OSError as failure:
                    raise store_error(path, failure) from failure


def _arrays(data: bytes, about: Mapping[str, Any]) -> Arrays:
    """The arrays in `data`; ValueError or KeyError unless they are the ones that `about` describes."""
    if about["format_version"] != FORMAT_VERSION:
        raise ValueError(f"format version {about['format_version']}; this software writes {FORMAT_VERSION}")
    if hashlib.sha256(data).hexdigest() != about["sha256"]:
        raise ValueError("the arrays do not match their sha256")
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        return MappingProxyType({key: frozen_array(file[key]) for key in about["arrays"]})
