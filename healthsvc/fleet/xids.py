"""Which XID belongs to which failure class and grade (hardware facts; the words and actions are in guidance).

Source: NVIDIA's XID catalogue, read 2025-10; grades as the service uses them: T2 work lost and a reset or drain
needed, T1 terminal, P a precursor. Application codes (13, 31, 43, 45, ...) are 96 % of all lines on Summit in 2020
and are no evidence against the hardware: they are absent here.
"""

from typing import Literal

Grade = Literal["T1", "T2", "P"]

MEMORY_XIDS: dict[int, Grade] = {
    48: "T2",  # double-bit error
    63: "P",  # row remap or page retirement recorded
    64: "T1",  # row remap failed
    92: "P",  # high single-bit error rate
    94: "T2",  # contained uncorrectable error
    95: "T2",  # uncontained uncorrectable error
    140: "T2",  # unrecovered ECC error
    157: "T1",  # resource retirement failed
    160: "P",  # HBM channel repair
    161: "T1",  # HBM channel repair failed
    171: "T2",  # uncorrectable DRAM error
    172: "T2",  # uncorrectable SRAM error
}
DEVICE_LOSS_XIDS: dict[int, Grade] = {
    46: "T2",  # GPU stopped processing
    62: "T2",  # PMU halt
    74: "T2",  # NVLink error
    79: "T2",  # fallen off the bus; T1 when it recurs within 14 days of a reboot
    119: "T2",  # GSP RPC timeout
    120: "T2",  # GSP error
    136: "T2",  # link training failed
    143: "T2",  # GPU initialisation failed
    158: "T2",  # fatal timeout
}
XIDS_BY_CLASS: dict[str, dict[int, Grade]] = {"memory": MEMORY_XIDS, "device_loss": DEVICE_LOSS_XIDS}
