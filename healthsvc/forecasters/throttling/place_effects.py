"""Penalised logistic regression with random effects of nodes within racks, by Newton's method on all of them at once.

The nodes' block of the Hessian is diagonal, and so is the racks' once the nodes are eliminated: a step costs one pass
over the rows and a system as small as the number of covariates. What is left of the Hessian once both are eliminated
gives the covariance of the effects, the doubt about the places included. The variances of the places are learned by
Schall's rounds (1991, Biometrika 78:719): sum of squares over what the data have decided. Blind to GPUs that differ
from their node.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
MOST_STEPS, MOST_HALVINGS, MOST_ROUNDS = 60, 40, 12
CLOSE_ENOUGH = 1e-10  # of the mode: what the next step would add to twice the log posterior
ROUNDING = 1e-12  # of a log posterior, relative
SETTLED = 0.02  # relative change of a deviation between two rounds
PRIOR_PLACES = 1.0  # as many places the prior deviation counts for
NO_EFFECT = 1e12  # precision of what has no effect of its own: places that are not known


@dataclass(frozen=True)
class Rows:
    """x [row, covariate]; onset, 0 or 1, and offset of the log odds [row]; node [row] and rack_of [node] are numbers,
    the last of either standing for all that are not known."""

    x: Numbers
    onset: Numbers
    offset: Numbers
    node: NDArray[np.intp]
    rack_of: NDArray[np.intp]
    racks: int

    @staticmethod
    def of(
        x: Numbers,
        onset: Numbers,
        offset: Numbers,
        node: NDArray[np.int32],
        rack: NDArray[np.int32],
        nodes: int,
        racks: int,
    ) -> "Rows":
        """node and rack: group numbers of each row, below nodes and racks, -1 where not known. A node stands in one
        rack."""
        at = np.where(node < 0, nodes, node).astype(np.intp)
        rack_of = np.full(nodes + 1, racks, np.intp)
        rack_of[at] = np.where((rack < 0) | (node < 0), racks, rack)
        return Rows(x, onset, offset, at, rack_of, racks + 1)

    def by_node(self, values: Numbers) -> Numbers:
        """Sums over rows [node] or [node, column]."""
        columns = values[:, None] if values.ndim == 1 else values
        sums = np.stack([np.bincount(self.node, column, len(self.rack_of)) for column in columns.T], axis=1)
        return np.asarray(sums.reshape(-1, *values.shape[1:]), np.float64)

    def by_rack(self, values: Numbers) -> Numbers:
        """Sums over nodes [rack] or [rack, column]."""
        found = np.zeros((self.racks, *values.shape[1:]))
        np.add.at(found, self.rack_of, values)
        return found


@dataclass(frozen=True)
class PlaceFit:
    """effects [covariate] with their covariance; node [node] and rack [rack] effects, the unknown place left out, their
    variances given the effects, and the deviations they were taken to have."""

    effects: Numbers
    covariance: Numbers
    node: Numbers
    rack: Numbers
    node_variance: Numbers
    rack_variance: Numbers
    node_sd: float
    rack_sd: float


def fit_places(rows: Rows, centre: Numbers, spread: Numbers, place_sd: float) -> PlaceFit:
    """centre and spread of the Gaussian priors on the effects [covariate]; place_sd is that of nodes and of racks to
    begin with. Without rows it is the prior."""
    here = np.unique(rows.node[rows.node < len(rows.rack_of) - 1])
    racks = np.unique(rows.rack_of[here][rows.rack_of[here] < rows.racks - 1])
    at = _At(centre, np.zeros(len(rows.rack_of)), np.zeros(rows.racks))
    node_sd = rack_sd = place_sd
    for _ in range(MOST_ROUNDS):
        search = _Search(rows, centre, spread**-2.0, _precision(node_sd, len(at.node)), _precision(rack_sd, rows.racks))
        at, curve = search.highest(at)
        before = node_sd, rack_sd
        node_variance, rack_variance = curve.variances(rows.rack_of)
        node_sd = _deviation(at.node[here], node_variance[here], node_sd, place_sd)
        rack_sd = _deviation(at.rack[racks], rack_variance[racks], rack_sd, place_sd)
        if max(abs(node_sd / before[0] - 1), abs(rack_sd / before[1] - 1)) < SETTLED:
            break
    return PlaceFit(
        at.effects,
        np.asarray(np.linalg.inv(curve.effects), np.float64),
        at.node[:-1],
        at.rack[:-1],
        node_variance[:-1],
        rack_variance[:-1],
        *before,
    )


def _precision(sd: float, places: int) -> Numbers:
    return np.append(np.full(places - 1, sd**-2.0), NO_EFFECT)


def _deviation(effect: Numbers, variance: Numbers, sd: float, prior_sd: float) -> float:
    """Of places, from their effects and what is in doubt of each."""
    decided = float(np.sum(1.0 - np.minimum(variance / sd**2, 1.0)))
    return float(np.sqrt((np.sum(effect**2) + PRIOR_PLACES * prior_sd**2) / (decided + PRIOR_PLACES)))


@dataclass(frozen=True)
class _At:
    """Where the search stands."""

    effects: Numbers
    node: Numbers
    rack: Numbers

    def moved(self, step: "_At", length: float) -> "_At":
        return _At(self.effects + length * step.effects, self.node + length * step.node, self.rack + length * step.rack)


@dataclass(frozen=True)
class _Curve:
    """The Hessian, negated: of the effects with nodes and racks eliminated, of racks with the nodes eliminated, of
    nodes; and the rows' part of the latter."""

    effects: Numbers
    rack: Numbers
    node: Numbers
    node_rows: Numbers

    def variances(self, rack_of: NDArray[np.intp]) -> tuple[Numbers, Numbers]:
        """Of nodes, the doubt about their racks included, and of racks."""
        carried = (self.node_rows / self.node) ** 2
        return 1.0 / self.node + carried / self.rack[rack_of], 1.0 / self.rack


@dataclass(frozen=True)
class _Search:
    """The posterior of effects and places, for given deviations of the places."""

    rows: Rows
    centre: Numbers
    precision: Numbers
    node_precision: Numbers
    rack_precision: Numbers

    def highest(self, at: _At) -> tuple[_At, _Curve]:
        """The mode, from `at` on, and the curvature there. Steps that would go downhill are halved."""
        odds = self._log_odds(at)
        height = self._height(at, odds)
        for _ in range(MOST_STEPS):
            step, curve, gain = self._step(at, odds)
            if gain < CLOSE_ENOUGH:
                break
            before, length = height, 1.0
            for _ in range(MOST_HALVINGS):
                there = at.moved(step, length)
                odds = self._log_odds(there)
                height = self._height(there, odds)
                if height >= before - ROUNDING * (1.0 + abs(before)):
                    break
                length /= 2.0
            at = there
        return at, curve

    def _log_odds(self, at: _At) -> Numbers:
        rows = self.rows
        return rows.x @ at.effects + (at.node + at.rack[rows.rack_of])[rows.node] + rows.offset

    def _height(self, at: _At, odds: Numbers) -> float:
        """Log posterior."""
        penalty = self.precision @ (at.effects - self.centre) ** 2
        penalty += self.node_precision @ at.node**2 + self.rack_precision @ at.rack**2
        return float(self.rows.onset @ odds - np.logaddexp(0.0, odds).sum() - penalty / 2.0)

    def _step(self, at: _At, odds: Numbers) -> tuple[_At, _Curve, float]:
        """Newton's, the curvature it was made with, and twice what it would gain were the posterior Gaussian."""
        rows = self.rows
        p = 0.5 * (1.0 + np.tanh(odds / 2.0))
        weight, left = p * (1.0 - p), rows.onset - p
        weighted = rows.x * weight[:, None]
        x_node, w_node, left_node = rows.by_node(weighted), rows.by_node(weight), rows.by_node(left)
        hessian = weighted.T @ rows.x + np.diag(self.precision)
        gradient = rows.x.T @ left - self.precision * (at.effects - self.centre)
        of_node = w_node + self.node_precision
        node_gradient = left_node - at.node * self.node_precision
        hessian -= x_node.T @ (x_node / of_node[:, None])
        gradient -= x_node.T @ (node_gradient / of_node)
        rest = self.node_precision / of_node  # of a node's rows, once its own effect is eliminated
        x_rack = rows.by_rack(x_node * rest[:, None])
        of_rack = rows.by_rack(w_node * rest) + self.rack_precision
        rack_gradient = rows.by_rack(left_node - w_node * node_gradient / of_node) - at.rack * self.rack_precision
        hessian -= x_rack.T @ (x_rack / of_rack[:, None])
        gradient -= x_rack.T @ (rack_gradient / of_rack)
        step: Numbers = np.asarray(np.linalg.solve(hessian, gradient), np.float64)
        rack_step = (rack_gradient - x_rack @ step) / of_rack
        node_step = (node_gradient - x_node @ step - w_node * rack_step[rows.rack_of]) / of_node
        gain = float(gradient @ step + np.sum(rack_gradient**2 / of_rack) + np.sum(node_gradient**2 / of_node))
        return _At(step, node_step, rack_step), _Curve(hessian, of_rack, of_node, w_node), gain
