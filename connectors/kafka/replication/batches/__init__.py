"""Record batches, copied unopened."""
