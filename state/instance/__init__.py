"""The instances of one application: which of them leads, and whether the journal is the one that they wrote."""
