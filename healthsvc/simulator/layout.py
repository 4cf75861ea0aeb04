"""Who is where: the simulated fleet's GPUs and the nodes, racks and loops that they share."""

import uuid
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from healthsvc.fleet import GpuId, Placement, Topology, build_topology
from healthsvc.simulator.spec import Spec

PCI_BUSES = ("1B", "43", "52", "61", "9D", "C3", "D1", "DF")  # of an eight-way H100 baseboard


class FleetSpec(Spec):
    """How many GPUs there are, and how many of each share a node, a rack, a loop."""

    gpus: int = Field(64, ge=1, le=100_000, description="GPUs in the fleet")
    gpus_per_node: int = Field(8, ge=1, le=16, description="GPUs of one node; the last node may have fewer")
    nodes_per_rack: int = Field(2, ge=1, description="nodes of one rack")
    racks_per_loop: int = Field(2, ge=1, description="racks on one cooling loop")
    racks_per_row: int = Field(8, ge=1, description="racks of one row")
    racks_per_feed: int = Field(1, ge=1, description="racks on one power feed")
    cooling: Literal["liquid", "air"] = Field("liquid", description="what a GPU's heat goes into")
    product: str = Field("NVIDIA H100 80GB HBM3", min_length=1, description="the exporter's modelName")
    cluster: str = Field("", description="cluster name; empty: none")


@dataclass(frozen=True)
class Layout:
    """The fleet's places by number: GPU i sits in node node_of[i], on loop loop_of[i] (int [gpu])."""

    spec: FleetSpec

    @cached_property
    def node_of(self) -> NDArray[np.intp]:
        return np.arange(self.spec.gpus) // self.spec.gpus_per_node

    @cached_property
    def rack_of_node(self) -> NDArray[np.intp]:
        return np.arange(self.node_of[-1] + 1) // self.spec.nodes_per_rack

    @cached_property
    def loop_of_node(self) -> NDArray[np.intp]:
        return self.rack_of_node // self.spec.racks_per_loop

    @cached_property
    def loop_of(self) -> NDArray[np.intp]:
        return self.loop_of_node[self.node_of]

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        return tuple(f"node-{i + 1:03d}" for i in range(len(self.rack_of_node)))

    @cached_property
    def loops(self) -> tuple[str, ...]:
        return tuple(f"loop-{i + 1}" for i in range(self.loop_of_node[-1] + 1))

    @cached_property
    def feed_of_node(self) -> NDArray[np.intp]:
        return self.rack_of_node // self.spec.racks_per_feed

    @cached_property
    def feeds(self) -> tuple[str, ...]:
        return tuple(f"feed-{i + 1}" for i in range(self.feed_of_node[-1] + 1))

    def places(self, layer: str) -> tuple[tuple[str, ...], NDArray[np.intp]]:
        """Names of a layer's places (node, cooling_loop, power_feed), and the place of each GPU [gpu]."""
        return {
            "node": (self.nodes, self.node_of),
            "cooling_loop": (self.loops, self.loop_of),
            "power_feed": (self.feeds, self.feed_of_node[self.node_of]),
        }[layer]

    def placement(self) -> Placement:
        """Where each node stands, as topology.csv says it."""
        rows = {
            node: {
                "tray": f"r{rack + 1}-u{i % self.spec.nodes_per_rack + 1}",
                "rack": f"r{rack + 1}",
                "cooling_loop": self.loops[loop],
                "row": f"row-{rack // self.spec.racks_per_row + 1}",
                "power_feed": self.feeds[self.feed_of_node[i]],
            }
            for i, (node, rack, loop) in enumerate(zip(self.nodes, self.rack_of_node, self.loop_of_node, strict=True))
        }
        return Placement(rows)

    def gpus(self, rng: np.random.Generator) -> tuple[GpuId, ...]:
        """The GPUs, with UUIDs drawn from `rng`: the same seed, the same fleet."""
        found = []
        for row in range(self.spec.gpus):
            index = row % self.spec.gpus_per_node
            bus = PCI_BUSES[index] if self.spec.gpus_per_node <= len(PCI_BUSES) else f"{0x10 + index:02X}"
            found.append(
                GpuId(
                    device_id=f"GPU-{uuid.UUID(bytes=rng.bytes(16), version=4)}",
                    hostname=self.nodes[self.node_of[row]],
                    index=str(index),
                    product=self.spec.product,
                    slot=f"00000000:{bus}:00.0",
                    cluster=self.spec.cluster,
                )
            )
        return tuple(found)

    def topology(self, gpus: tuple[GpuId, ...]) -> Topology:
        """The shared places of `gpus`."""
        return build_topology(gpus, self.placement())
