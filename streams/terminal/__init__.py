"""Parts of commands: options, tables, exit codes, and the client of the running application."""
