"""Every rule for forecasters, in the order in which they are tried.

A rule takes (forecaster, history, rng) and raises AssertionError with a sentence and the numbers. A new rule is one
function and one entry here.
"""

from collections.abc import Callable

import numpy as np

from healthsvc.fleet import FleetHistory
from healthsvc.forecasters.base import Forecaster
from healthsvc.testing.conduct_rules import (
    a_forecaster_that_reads_no_events_says_the_same_without_them,
    gpus_outside_the_pool_change_nothing,
    inputs_are_left_untouched,
    state_survives_a_file,
    the_future_is_not_known,
    the_order_of_the_gpus_does_not_matter,
    the_same_input_gives_the_same_forecast,
    whole_weeks_of_shift_change_nothing,
)
from healthsvc.testing.verdict_rules import (
    a_first_start_without_a_ledger_is_no_error,
    a_forecast_has_the_shapes_and_types_it_promises,
    a_gpu_that_falls_silent_takes_nobody_with_it,
    a_gpu_that_lacks_a_required_group_is_unknown,
    a_gpu_without_data_on_a_silent_node_is_unknown,
    a_newcomer_gets_a_row,
    a_terminal_failure_is_never_likelier_than_a_service_event,
    hazard_is_never_negative_and_rises_with_the_horizon,
    one_gpu_can_be_projected,
)

Rule = Callable[[Forecaster, FleetHistory, np.random.Generator], None]

RULES: tuple[Rule, ...] = (
    a_forecast_has_the_shapes_and_types_it_promises,
    hazard_is_never_negative_and_rises_with_the_horizon,
    a_terminal_failure_is_never_likelier_than_a_service_event,
    a_gpu_without_data_on_a_silent_node_is_unknown,
    a_gpu_that_lacks_a_required_group_is_unknown,
    a_gpu_that_falls_silent_takes_nobody_with_it,
    inputs_are_left_untouched,
    the_same_input_gives_the_same_forecast,
    the_order_of_the_gpus_does_not_matter,
    gpus_outside_the_pool_change_nothing,
    whole_weeks_of_shift_change_nothing,
    the_future_is_not_known,
    a_forecaster_that_reads_no_events_says_the_same_without_them,
    state_survives_a_file,
    a_newcomer_gets_a_row,
    a_first_start_without_a_ledger_is_no_error,
    one_gpu_can_be_projected,
)
