"""Drills on real servers, with Trueup and without."""
