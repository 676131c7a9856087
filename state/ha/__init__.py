"""Leadership among the instances of one application: decisions without clock or I/O."""
