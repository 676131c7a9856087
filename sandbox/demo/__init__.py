"""Demos on real servers, with and without Trueup."""
