"""`trueup sandbox` and `trueup demo`."""
