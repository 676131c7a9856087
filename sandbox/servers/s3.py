"""The program of `Objects`: moto's S3 alone. Arguments: host, port, and the files of a certificate and its key.

moto's own server chooses a service for each request. It takes a signature of version 2, which brokers send, for a
scope of version 4 if the signature's base64 has four slashes, and answers 500 (one request in about a thousand).
"""

import sys

from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple


class Handler(MotoRequestHandler):
    """Announces once that a body may be sent. The server's two base classes both do that, and S3A expects the result of
    its request after the first announcement."""

    def handle_expect_100(self) -> bool:
        """Leave it to werkzeug's `run_wsgi`."""
        return True


if __name__ == "__main__":
    host, port, *tls = sys.argv[1:]
    run_simple(
        host,
        int(port),
        create_backend_app("s3"),
        threaded=True,
        request_handler=Handler,
        ssl_context=(tls[0], tls[1]) if tls else None,
    )
