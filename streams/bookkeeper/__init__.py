"""The BookKeeper cluster, shared by the placement and deletion streams."""
