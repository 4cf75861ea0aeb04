"""The only wiring: sources, store, forecasters and publishers become a score loop and a train loop."""
