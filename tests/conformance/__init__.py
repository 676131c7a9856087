"""The contract of `connectors.contract`, tested for every connector of every system."""
