"""Records, copied individually: filtered, transformed, re-keyed."""
