"""What commands are made of: options, tables, exit codes, checks, and the client of the running application."""
