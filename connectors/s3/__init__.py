"""Object stores with an S3 API: listings, ranged reads, and confirmed deletions."""
