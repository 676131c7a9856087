"""The Spark data source pulsar-ledgers: topics as data frames, without a broker."""
