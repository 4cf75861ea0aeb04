"""How many of a GPU's neighbours show something, in rings around it: its node, its rack, its loop."""

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import NEIGHBOUR_LAYERS, Topology


def ring_counts(flags: NDArray[np.bool_], topology: Topology) -> tuple[NDArray[np.int32], ...]:
    """How many others are flagged, int32[gpu, bin], one array for each of NEIGHBOUR_LAYERS; flags bool[gpu, bin].

    Each other GPU counts once, in the narrowest layer that it shares: those of the node, those of the rack outside the
    node, those of the loop outside rack and node. 0 where the layer is not known.
    """
    gpus, bins = flags.shape
    row, at = np.nonzero(flags)  # few: counting them costs less than adding up the fleet

    def among(group: NDArray[np.int32]) -> NDArray[np.int32]:
        """Those flagged in each GPU's group, itself included."""
        count = np.bincount(group[row].astype(np.intp) * bins + at, minlength=(int(group.max(initial=-1)) + 1) * bins)
        return count.astype(np.int32).reshape(-1, bins)[group]

    node, rack, loop = (_told_apart(topology.group(layer, gpus)) for layer in NEIGHBOUR_LAYERS)
    both = _shared(node, rack)
    in_loop = among(loop) - among(_shared(loop, node)) - among(_shared(loop, rack)) + among(_shared(loop, both))
    return among(node) - flags, among(rack) - among(both), in_loop


def _told_apart(group: NDArray[np.int32]) -> NDArray[np.int32]:
    """The groups, with one of its own for each GPU whose group is not known."""
    alone = int(group.max(initial=-1)) + 1 + np.arange(len(group), dtype=np.int32)
    return np.where(group < 0, alone, group).astype(np.int32)


def _shared(one: NDArray[np.int32], other: NDArray[np.int32]) -> NDArray[np.int32]:
    """Group number of those who share both."""
    pair = one.astype(np.int64) * (int(other.max(initial=0)) + 1) + other
    number: NDArray[np.int32] = np.unique(pair, return_inverse=True)[1].astype(np.int32)
    return number
