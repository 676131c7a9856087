"""The picture of the page in the README: `python -m tests.browser.picture` renders it.

The picture contains a digest of what it was made of, so that a test can tell whether it is outdated."""

import hashlib
import struct
import zlib
from pathlib import Path

from tests.browser.chromium import launched
from tests.browser.scene import everything
from trueup.streams.catalog import all_metrics
from trueup.streams.web.api import create_app, serve

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "page.png"
WIDTH, HEIGHT = 1280, 980
MADE_OF = ("streams/**/templates/*.html", "streams/web/static/page.*", "tests/browser/scene.py")
_SIGNATURE, _HEAD = 8, 25
"""Bytes of a PNG before its first optional chunk: the signature, and the chunk IHDR."""


def digest() -> str:
    """The digest of the sources of the picture."""
    found = hashlib.sha256()
    for path in sorted(path for pattern in MADE_OF for path in ROOT.glob(pattern)):
        found.update(path.read_bytes())
    return found.hexdigest()


def render() -> bytes:
    """The overview as a PNG."""
    server = serve(create_app(everything(), all_metrics()), "127.0.0.1", 0)
    with launched() as browser:
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(f"http://127.0.0.1:{server.port}/")
        made = page.screenshot()
    server.stop()
    return made


def labelled(picture: bytes, text: str) -> bytes:
    """The picture with a text (PNG specification, chunk tEXt)."""
    content = b"tEXt" + b"Comment\0" + text.encode()
    chunk = struct.pack(">I", len(content) - 4) + content + struct.pack(">I", zlib.crc32(content))
    return picture[: _SIGNATURE + _HEAD] + chunk + picture[_SIGNATURE + _HEAD :]


if __name__ == "__main__":
    PICTURE.write_bytes(labelled(render(), digest()))
