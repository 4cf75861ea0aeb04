"""The errors that healthy GPUs make: rare, random, and most of them on few cards."""

import numpy as np
from pydantic import Field

from healthsvc.fleet import DAY_S, Signal
from healthsvc.simulator.drive import Drive
from healthsvc.simulator.spec import Spec

APPLICATION_XIDS = (31, 13, 43)  # 96 % of all XID lines on Summit in 2020; no evidence against the hardware


class ErrorSpec(Spec):
    """How often what happens, per GPU and day."""

    correctable_per_day: float = Field(0.02, ge=0, description="correctable memory errors of an ordinary GPU")
    noisy_gpus_ratio: float = Field(0.08, ge=0, le=1, description="share of GPUs that make most of them")
    noisy_correctable_per_day: float = Field(6.0, ge=0, description="correctable memory errors of such a GPU (median)")
    correctable_remaps_per_day: float = Field(0.0005, ge=0, description="rows remapped for correctable errors")
    pcie_replays_per_day: float = Field(0.05, ge=0, description="PCIe replays")
    application_xids_per_day: float = Field(0.02, ge=0, description="XIDs that an application caused")


class Errors:
    """Draws chunk after chunk; the same seed draws the same."""

    def __init__(self, spec: ErrorSpec, gpus: int, step_s: float, rng: np.random.Generator) -> None:
        self.spec, self.step_s = spec, step_s
        who, *self._streams = rng.spawn(5)
        noisy = who.random(gpus) < spec.noisy_gpus_ratio
        strength = spec.noisy_correctable_per_day * np.exp(who.normal(0.0, 1.0, gpus))
        self._correctable = np.where(noisy, strength, spec.correctable_per_day)[:, None]
        self.correctable_before = np.floor(who.exponential(200.0, gpus) * self._correctable[:, 0])

    def strike(self, drive: Drive) -> None:
        """Writes the chunk's errors into the drive."""
        shape, days = drive.wanted_watts.shape, self.step_s / DAY_S
        correctable, remaps, replays, xids = self._streams
        drive.counts[Signal.SBE_VOLATILE] += correctable.poisson(self._correctable * days, shape)
        drive.counts[Signal.CORRECTABLE_REMAPS] += remaps.poisson(self.spec.correctable_remaps_per_day * days, shape)
        drive.counts[Signal.PCIE_REPLAYS] += replays.poisson(self.spec.pcie_replays_per_day * days, shape)
        struck = xids.random(shape) < self.spec.application_xids_per_day * days
        codes = xids.choice(APPLICATION_XIDS, shape, p=(0.6, 0.3, 0.1))
        drive.xid[struck] = codes[struck]
