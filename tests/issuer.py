"""An OpenID Connect provider on loopback: discovery, keys, and tokens that tests make."""

import json
import threading
import time
from base64 import b64decode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

AUDIENCE = "trueup"


class Issuer:
    """``answers``: content by path, which tests change. ``asked``: the paths of requests, in order. ``secrets`` of
    clients by name, who get tokens for the audience ``granted`` at /token, valid for ``valid_s``."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(65_537, 2_048)
        self.curve = ec.generate_private_key(ec.SECP256R1())
        self.asked: list[str] = []
        self.secrets: dict[str, str] = {}
        self.granted, self.valid_s = "kafka", 600
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                found = issuer.answers.get(self.path)
                content = found if isinstance(found, bytes) else json.dumps(found).encode()
                self.send_response(404 if found is None else 200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def do_POST(self) -> None:
                issuer.asked.append(self.path)
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                user, _, secret = b64decode(self.headers["Authorization"].partition(" ")[2]).decode().partition(":")
                right = form["grant_type"] == ["client_credentials"] and secret == issuer.secrets.get(user)
                token = issuer.token(sub=user, aud=issuer.granted, scope=form.get("scope", [""])[0]) if right else ""
                answer = {"access_token": token, "expires_in": issuer.valid_s, "token_type": "Bearer"}
                content = json.dumps(answer if right else {"error": "invalid_client"}).encode()
                self.send_response(200 if right else 401)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.answers: dict[str, Any] = {
            "/.well-known/openid-configuration": {"issuer": self.url, "jwks_uri": f"{self.url}/keys"},
            "/keys": {"keys": [self.jwk("one"), self.curve_jwk("two")]},
        }
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def jwk(self, kid: str, **more: str) -> dict[str, Any]:
        """The RSA key as published."""
        return {**RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True), "kid": kid, **more}

    def curve_jwk(self, kid: str) -> dict[str, Any]:
        """The key on a curve as published."""
        return {**ECAlgorithm.to_jwk(self.curve.public_key(), as_dict=True), "kid": kid}

    def public(self) -> bytes:
        """The RSA key in PEM, which everybody knows."""
        return self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def claims(self, **changed: Any) -> dict[str, Any]:
        """Valid claims of ada, an operator. None removes a claim."""
        made = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "ada",
            "iat": int(time.time()),
            "exp": int(time.time()) + 600,
            "groups": ["operators"],
            **changed,
        }
        return {name: value for name, value in made.items() if value is not None}

    def token(self, kid: str = "one", algorithm: str = "RS256", **changed: Any) -> str:
        """A signed token."""
        key: Any = self.curve if algorithm.startswith("ES") else self.key
        return jwt.encode(self.claims(**changed), key, algorithm, headers={"kid": kid})

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
