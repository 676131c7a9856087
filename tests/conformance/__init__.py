"""What every connector has to keep of `connectors.contract`, whatever system it is for."""
