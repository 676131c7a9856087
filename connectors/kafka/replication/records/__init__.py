"""Records, copied one by one: filtered, transformed, re-keyed."""
