"""Links between clusters: leases, offset maps, groups, loops and anomalies."""
