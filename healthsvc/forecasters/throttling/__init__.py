"""The parts of throttling_cascade: what fails right now, what begins by itself, what strikes together."""
