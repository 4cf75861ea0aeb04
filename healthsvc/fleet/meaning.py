"""What the words mean: the numbers behind classes and grades, the same for live, labels, simulator and back-tests."""

import math

from healthsvc.fleet.times import DAY_S

THERMAL_DAYS = 7  # with steady load, from which the trend of a cooling path is told
REMEMBERED_DAYS = 400  # how long the failures of a GPU count as its past; the ledger is kept as long
ROWS_A_BANK = 8  # uncorrectable rows of a bank that remapping repairs (NVIDIA GPU memory error management)
LEAST_MEMBERS = 3  # a domain throttles when at least this many of its members do
HOLDS_SHARE = 0.8  # an incident is on the smallest domain that holds this share of the affected GPUs
THROTTLE_DOSE = 0.30  # share of an hour throttled by heat: thermal T2
HARDWARE_DOSE = 0.05  # share of an hour in hardware slowdown: thermal T1
RECURS_WITHIN_S = 14 * DAY_S  # a device event again within two weeks of a reboot is terminal
LEAD_MIN_S = 900.0  # time to save a checkpoint and drain: what is seen later is the event itself
PROBABILITY_CAP = 0.999
HAZARD_CAP = -math.log1p(-PROBABILITY_CAP)  # the largest hazard there is: P is clipped, so that H stays finite
