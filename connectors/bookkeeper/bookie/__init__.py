"""The bookie protocol: connections, reads of entries, the admin API."""
