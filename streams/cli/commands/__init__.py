"""The commands of `trueup`, a module each."""
