"""What may be wrong with a cooling path, by the signature it leaves: numbers in evidence, words in guidance."""

from enum import IntEnum


class ThermalCause(IntEnum):
    """Stored in evidence as numbers: append, never renumber."""

    NONE = 0
    THERMAL_PATH = 1  # one GPU's die, and no memory sensor to tell the interface from the cold plate
    INTERFACE = 2  # the die alone: thermal interface material pumps or dries out
    COLD_PLATE = 3  # die and memory of one GPU alike: cold plate fouled, heat sink blocked
    NODE_AIRFLOW = 4  # all GPUs of a node: fan, filter, its branch of the loop
    LOOP_FLOW = 5  # all nodes of a loop: pump, flow
    SUPPLY_WARM = 6  # inlet or coolant supply is warmer, resistance is what it was
    SENSOR = 7  # a step from one day to the next that did not go on: sensor, or mounting
