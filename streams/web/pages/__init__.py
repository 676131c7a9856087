"""The pages for operators. They are rendered on the server; a script requests the present page periodically."""
