"""The settings file as typed values, and checks across sections."""
