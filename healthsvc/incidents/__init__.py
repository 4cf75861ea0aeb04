"""The only opener of node, tray, rack, loop, row and feed incidents: one incident in place of a thousand alerts.

An incident opens on a fact (half of a place's members start to throttle within ten minutes, measured coolant flow below
half of rated, power brakes on three nodes within ten minutes), on more onsets than heat and load explain, or on a
forecast above its threshold; a clear step in the thermal resistance of a node or loop is watched without an alert. It
sits on the smallest place that holds at least 80 % of the affected GPUs, and what overlaps with it joins it. It clears
after 30 calm minutes, data time.
"""

from healthsvc.incidents.life import update_incidents
from healthsvc.incidents.policy import IncidentPolicy

__all__ = ["IncidentPolicy", "update_incidents"]
