"""The commands of `trueup`, one module each."""
