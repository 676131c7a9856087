"""What every benchmark needs."""
