"""The deletion stream."""
