"""What every subject uses: errors, options, patterns, life cycles."""
