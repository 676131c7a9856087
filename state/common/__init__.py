"""Modules that all streams share: errors, options, patterns, life cycles."""
