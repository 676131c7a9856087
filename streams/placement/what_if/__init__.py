"""Effects of the loss of bookies or racks: on request, and as a report of every bookie and rack."""
