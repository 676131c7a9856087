"""Record batches, copied without decompression."""
