"""The slow, obvious twin of the fit of onsets: one column a covariate, node and rack, and a Hessian of them all."""

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def fit(
    x: Numbers,
    onset: Numbers,
    offset: Numbers,
    node: NDArray[np.int32],
    rack: NDArray[np.int32],
    centre: Numbers,
    spread: Numbers,
    node_sd: float,
    rack_sd: float,
) -> tuple[Numbers, Numbers]:
    """Mode [covariate, node, rack] and its covariance. A place of number -1 has no effect, nor has its node's rack."""
    nodes, racks = int(node.max()) + 1, int(rack.max()) + 1
    whole = np.zeros((len(x), x.shape[1] + nodes + racks))
    whole[:, : x.shape[1]] = x
    for row, (n, r) in enumerate(zip(node.tolist(), rack.tolist(), strict=True)):
        if n >= 0:
            whole[row, x.shape[1] + n] = 1.0
        if n >= 0 and r >= 0:
            whole[row, x.shape[1] + nodes + r] = 1.0
    precision = np.concatenate([spread**-2.0, np.full(nodes, node_sd**-2.0), np.full(racks, rack_sd**-2.0)])
    prior = np.concatenate([centre, np.zeros(nodes + racks)])
    at = prior.copy()
    for _ in range(50):
        p = 1.0 / (1.0 + np.exp(-(whole @ at + offset)))
        hessian = whole.T @ (whole * (p * (1 - p))[:, None]) + np.diag(precision)
        at = at + np.linalg.solve(hessian, whole.T @ (onset - p) - precision * (at - prior))
    return at, np.linalg.inv(hessian)
