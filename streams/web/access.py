"""Who sends a request: the tokens of http.tokens_file and of section oidc, and sessions of the status page.

A token is sent as ``Authorization: Bearer TOKEN``, or as ``Trueup-Token: TOKEN`` if a proxy uses Authorization. A
session of the page has the role of its token. So that no page of another site can use it to change something, its
requests that may change something must have an Origin, which the guard compares with the Host, and in the header
Trueup-Check a secret that only the page contains. A session ends with its token: the file is read again when it
changes. See `others` for callers that a provider or a proxy has authenticated.
"""

import logging
import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from flask import Request

from trueup.connectors.oidc import Issuer
from trueup.connectors.replaced import state_of
from trueup.state.common.errors import Refused
from trueup.state.settings.roles import Role
from trueup.state.settings.settings import Settings
from trueup.state.settings.tokens import LONGEST_TOKEN, Token, digest_of, find, parse
from trueup.streams.runtime.headers import CHECK, TOKEN
from trueup.streams.web.guard import READS, Rejected
from trueup.streams.web.others import Caller, Provider, Proxies, is_jwt

log = logging.getLogger(__name__)
COOKIE = "trueup-session"
SESSION_S, SESSIONS = 12 * 3_600, 1_000
REMEMBERED_S = 7 * 86_400
"""How long a browser keeps the cookie, so that the login can say why the session ended."""
LARGEST_FILE = 1 << 20
LOG_S = 10.0
REMEDY = "send a token of http.tokens_file; see --token-file, and `trueup token new`"


class TokenFile:
    """The tokens of a file, read again when it changes. Nobody is admitted while it is not readable. ``problems``: one
    line for the file, or for each line of it that is not valid."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen: object = None
        self._tokens: list[Token] = []
        self.problems: list[str] = []

    def tokens(self) -> list[Token]:
        """The present tokens."""
        with self._lock:
            seen = state_of(self._path)
            if seen != self._seen:
                self._tokens, problems = self._read()
                self._seen, self.problems = seen, [f"http.tokens_file {self._path}: {text}" for text in problems]
                for problem in self.problems:
                    log.warning("tokens not valid", extra={"problem": problem})
                log.info("tokens read", extra={"file": str(self._path), "tokens": len(self._tokens)})
            return self._tokens

    def check(self) -> list[str]:
        """Read the file, and return its problems."""
        self.tokens()
        return self.problems

    def _read(self) -> tuple[list[Token], list[str]]:
        try:
            with self._path.open("rb") as file:
                content = file.read(LARGEST_FILE + 1)
            text = content.decode()
        except OSError as error:
            return [], [f"expected a readable file; found: {error.strerror}; nobody is admitted"]
        except UnicodeDecodeError:
            return [], ["expected UTF-8 text; found something else; nobody is admitted"]
        if len(content) > LARGEST_FILE:
            return [], [f"expected at most {LARGEST_FILE} bytes; found more; nobody is admitted"]
        tokens, problems = parse(text)
        return tokens, problems or ([] if tokens else ["expected a token; found none; nobody is admitted"])


def writable_by_others(path: Path) -> bool:
    """Whether other users may change the file. Raises `OSError`."""
    return bool(os.stat(path).st_mode & 0o022)


@dataclass(frozen=True, slots=True)
class _Session:
    """A session of the status page."""

    name: str
    role: Role
    digest: bytes
    """The digest of the session's token in the file; empty for a token of a provider, which cannot be checked again."""
    until_s: float
    check: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """The secret that only the page of the session contains."""


class Access:
    """Admits callers with a token. ``refused`` counts refused requests by reason: missing, invalid, role."""

    def __init__(
        self,
        file: TokenFile | None,
        refused: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        provider: Provider | None = None,
        proxies: Proxies | None = None,
    ) -> None:
        self._file, self._refused, self._clock = file, refused, clock
        self._provider, self._proxies = provider, proxies
        self._lock = threading.Lock()
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        self._logged_s, self._unlogged = float("-inf"), 0

    @property
    def problems(self) -> list[str]:
        """Problems of the file of tokens, and of the keys of the provider."""
        return [*(self._file.check() if self._file else ()), *(self._provider.problems if self._provider else ())]

    def caller(self, request: Request) -> Caller | None:
        """The sender; None: without a valid token or session, or without a role."""
        try:
            caller = self._sender(request)
        except Refused:
            return None
        return caller if caller.role else None

    def require(self, request: Request, role: Role) -> Caller:
        """The sender, who has at least this role. Raises `Rejected`."""
        try:
            caller = self._sender(request)
        except Refused as error:
            sent = _sent(request) or request.cookies.get(COOKIE)
            self._count("invalid" if sent else "missing", request, "unknown")
            raise Rejected(401, error.expected, error.found, error.todo) from None
        if caller.role is None or caller.role < role:
            self._count("role", request, caller.name)
            has = f"whose role is {caller.role.text}" if caller.role else "to whom the settings give no role"
            raise Rejected(
                403, f"a caller with the role {role.text}", f"{caller.name}, {has}", "use a token with this role"
            )
        return caller

    def begin(self, request: Request, token: str) -> str:
        """A new session for a token. Raises `Rejected`."""
        now_s = self._clock()
        try:
            if self._provider and is_jwt(token):
                caller, valid_s = self._provider.caller(token)
                if caller.role is None:
                    raise Refused("a caller with a role", f"{caller.name}, to whom oidc.roles gives none", "grant one")
                entry = _Session(caller.name, caller.role, b"", now_s + min(valid_s, SESSION_S))
            else:
                match = self._token(token)
                entry = _Session(match.name, match.role, match.digest, now_s + SESSION_S)
        except Refused as error:
            self._count("invalid", request, "unknown")
            raise Rejected(401, error.expected, error.found, "enter a valid token") from None
        session = secrets.token_urlsafe(32)
        log.info("session begun", extra={"by": entry.name, "address": request.remote_addr})
        with self._lock:
            self._sessions[digest_of(session)] = entry
            while len(self._sessions) > SESSIONS:
                self._sessions.popitem(last=False)
        return session

    def end(self, session: str) -> None:
        """End a session."""
        with self._lock:
            self._sessions.pop(digest_of(session), None)

    def ended(self, request: Request) -> str:
        """Why the session of this request ended, as a key of `streams.web.login.ENDED`; empty if it had none."""
        cookie = request.cookies.get(COOKIE)
        with self._lock:
            session = self._sessions.get(digest_of(cookie or ""))
        if not cookie:
            return ""
        return "unknown" if session is None else "late" if self._clock() >= session.until_s else "token"

    def _sender(self, request: Request) -> Caller:
        """Raises `Refused`."""
        token = _sent(request)
        if not token:
            return self._of_session(request)
        if self._provider and is_jwt(token):
            return self._provider.caller(token)[0]
        match = self._token(token)
        if self._proxies and self._proxies.is_one(match):
            return self._proxies.caller(match, request.headers)
        return Caller(match.name, match.role)

    def _token(self, token: str) -> Token:
        match = None
        if self._file and 0 < len(token) <= LONGEST_TOKEN:
            match = find(self._file.tokens(), digest_of(token))
        if match is None:
            raise _refused("another one")
        return match

    def check(self, request: Request) -> str:
        """The secret of the page of this session; empty without one."""
        session = self._session(request)
        return session.check if session else ""

    def _session(self, request: Request) -> _Session | None:
        with self._lock:
            session = self._sessions.get(digest_of(request.cookies.get(COOKIE, "")))
        return session if session is not None and self._clock() < session.until_s else None

    def _of_session(self, request: Request) -> Caller:
        if not request.cookies.get(COOKIE):
            raise _refused("no token")
        session = self._session(request)
        holder = self._known(session) if session else None
        if session is None or holder is None:
            raise _refused("another one")
        given = request.headers.get(CHECK, "")
        of_page = "Origin" in request.headers and secrets.compare_digest(given.encode(), session.check.encode())
        if request.method not in READS and not of_page:
            raise Refused(f"a request of the page, with Origin and {CHECK}", "one without", "load the page again")
        return Caller(holder.name, holder.role)

    def _known(self, session: _Session) -> _Session | Token | None:
        """The present token of the file with which a session began, or the session if a provider's began it."""
        if not session.digest:
            return session
        return find(self._file.tokens(), session.digest) if self._file else None

    def _count(self, reason: str, request: Request, name: str) -> None:
        """Count a refused request. A line is logged at most every `LOG_S`: a client may try without end."""
        self._refused(reason)
        with self._lock:
            now_s = self._clock()
            if now_s - self._logged_s < LOG_S:
                self._unlogged += 1
                return
            also, self._unlogged, self._logged_s = self._unlogged, 0, now_s
        log.warning(
            "request refused",
            extra={
                "reason": reason,
                "caller": name,
                "address": request.remote_addr,
                "request": request.method,
                "path": request.path[:200],
                "not_logged_before": also,
            },
        )


def _refused(found: str) -> Refused:
    return Refused("a valid token", found, REMEDY)


def _sent(request: Request) -> str:
    """The token of a request, empty without one."""
    if own := request.headers.get(TOKEN):
        return own
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def access_of(settings: Settings, refused: Callable[[str], None]) -> Access | None:
    """The access that the settings ask for; None: callers are not authenticated. Raises `BadSettings`."""
    file, oidc, proxy = settings.http.tokens_file, settings.oidc, settings.proxy
    if not file and not oidc.issuer:
        return None
    provider = None
    if oidc.issuer:
        issuer = Issuer(oidc)
        issuer.read()  # a problem is shown before the first caller finds it
        provider = Provider(oidc, issuer)
    return Access(
        TokenFile(Path(file)) if file else None,
        refused,
        provider=provider,
        proxies=Proxies(proxy) if proxy.tokens else None,
    )
