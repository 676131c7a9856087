"""The keys by which settings describe TLS, of whatever system: see `connectors.tls.tls_of`."""

KEYS = ("tls.ca", "tls.certificate", "tls.key", "tls.key.password", "tls.check.host")
