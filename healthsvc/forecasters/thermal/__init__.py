"""Parts of thermal_trend: what is learned of one sensor, the conditions a GPU meets, the crossing, the cause."""
