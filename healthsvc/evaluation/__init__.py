"""The measuring stick: alerts and probabilities against labelled incidents. Pure, but for reading incidents.csv."""
