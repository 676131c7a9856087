"""Object stores that speak S3: what is there, ranges of it, and deletions that are confirmed."""
