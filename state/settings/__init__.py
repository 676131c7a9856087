"""The settings file as typed values, and the checks that need more than one section."""
