"""High availability: several instances of one application, of which one leads and acts."""
