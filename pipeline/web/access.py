"""Who may speak to the control endpoint, and the one shape of every refusal.

Host (421) stops DNS rebinding, Origin (403) stops a foreign page in the operator's own browser, the token
(401) stops everybody else. They are asked in that order, before routing shows what exists.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from http import HTTPStatus
from typing import NamedTuple

import structlog
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from pipeline.config import WebConfig
from pipeline.errors import CommandError
from pipeline.web.replies import error_reply
from pipeline.web.wording import TEXTS_ROUTE

#: The panel's own files; it must load before it can ask for the token.
PAGE_ROUTES = frozenset({"/", "/static", TEXTS_ROUTE})
#: Routes that answer without the token.
OPEN_ROUTES = PAGE_ROUTES | {"/livez", "/readyz"}
FEED_ROUTE = "/ws"
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
DEFAULT_PORTS = {"http": 80, "https": 443}
SAFE_METHODS = frozenset({hdrs.METH_GET, hdrs.METH_HEAD})

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        # No text ever becomes markup: the browser itself refuses innerHTML and its like.
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Server": "tidegate",
}

#: Set when the feed must still ask for the token in its first message.
NEEDS_AUTH = web.RequestKey("needs_auth", bool)

_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[^:/?#@\[\]\s]+)(?::([0-9]{1,5}))?")
_ORIGIN = re.compile(r"(https?)://(.+)")

log = structlog.get_logger()


class Authority(NamedTuple):
    host: str
    port: int | None


class Origin(NamedTuple):
    scheme: str
    host: str
    port: int


def parse_authority(text: str) -> Authority | None:
    match = _AUTHORITY.fullmatch(text.lower())
    if match is None:
        return None
    return Authority(_canonical(match[1].strip("[]")), int(match[2]) if match[2] else None)


def parse_origin(text: str) -> Origin | None:
    match = _ORIGIN.fullmatch(text.lower())
    authority = parse_authority(match[2]) if match else None
    if match is None or authority is None:
        return None
    return Origin(match[1], authority.host, authority.port or DEFAULT_PORTS[match[1]])


def _canonical(host: str) -> str:
    """One spelling for an address: 0:0::1 is ::1."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower()


class AccessRules:
    def __init__(self, config: WebConfig) -> None:
        self._names = frozenset({*LOOPBACK_NAMES, _canonical(config.host)})
        self._hosts = frozenset(filter(None, map(parse_authority, config.allowed_hosts)))
        self._origins = frozenset(filter(None, map(parse_origin, config.allowed_origins)))
        self._token = config.token.get_secret_value().encode()

    @property
    def needs_token(self) -> bool:
        return bool(self._token)

    def host_is_ours(self, header: str, our_port: int | None) -> bool:
        host = parse_authority(header)
        if host is None:
            return False
        if host.host in self._names and host.port in (None, our_port):
            return True
        # An allowed host without a port is a name that we answer to on any port, e.g. behind a proxy.
        return host in self._hosts or Authority(host.host, None) in self._hosts

    def origin_is_ours(self, header: str, host_header: str) -> bool:
        origin, host = parse_origin(header), parse_authority(host_header)
        if origin is None or host is None:
            return False
        same_port = origin.port == (host.port or DEFAULT_PORTS[origin.scheme])
        return (origin.host == host.host and same_port) or origin in self._origins

    def origin_is_listed(self, header: str) -> bool:
        return parse_origin(header) in self._origins

    def token_matches(self, presented: str) -> bool:
        return hmac.compare_digest(presented.encode("utf-8", "surrogateescape"), self._token)

    def bearer_matches(self, header: str) -> bool:
        scheme, _, presented = header.partition(" ")
        return scheme.lower() == "bearer" and self.token_matches(presented.strip())


def guard(rules: AccessRules) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = _foreign(rules, request) or _unauthorised(rules, request)
        return refusal if refusal is not None else await handler(request)

    return check


def _foreign(rules: AccessRules, request: web.Request) -> web.Response | None:
    hosts, origins = request.headers.getall(hdrs.HOST, []), request.headers.getall(hdrs.ORIGIN, [])
    if len(hosts) != 1 or not rules.host_is_ours(hosts[0], _our_port(request)):
        return error_reply(421, "wrong_host", "this Host is not served here; see web.allowed_hosts")
    if len(origins) > 1 or not all(rules.origin_is_ours(origin, hosts[0]) for origin in origins):
        return error_reply(403, "foreign_origin", "this Origin may not call; see web.allowed_origins")
    cross_site = request.headers.get("Sec-Fetch-Site", "").lower() == "cross-site"
    listed = any(map(rules.origin_is_listed, origins))
    if cross_site and not listed and request.method not in SAFE_METHODS:
        return error_reply(403, "foreign_origin", "a page of another site may not call")
    return None


def _unauthorised(rules: AccessRules, request: web.Request) -> web.Response | None:
    # The matched route decides, not the path as it was spelled: "/static/../api" opens nothing.
    resource = request.match_info.route.resource
    route = resource.canonical if resource is not None else None
    if not rules.needs_token or route in OPEN_ROUTES:
        return None
    headers = request.headers.getall(hdrs.AUTHORIZATION, [])
    if route == FEED_ROUTE and not headers:
        request[NEEDS_AUTH] = True
        return None
    if len(headers) == 1 and rules.bearer_matches(headers[0]):
        return None
    return error_reply(
        401, "unauthorized", "a valid token is needed", {hdrs.WWW_AUTHENTICATE: 'Bearer realm="tidegate"'}
    )


def _our_port(request: web.Request) -> int | None:
    """The port that this connection came in by: right also when the configured one is 0."""
    name = request.transport.get_extra_info("sockname") if request.transport else None
    return name[1] if isinstance(name, tuple) else None


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except CommandError as error:
        return error_reply(error.status, error.code, str(error))
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return _plain_refusal(error)
    except Exception:
        # The text of an exception may hold anything: it goes to the log, never to the caller.
        log.exception("request failed", method=request.method, path=request.path[:200])
        return error_reply(500, "internal_error", "internal error")


def _plain_refusal(error: web.HTTPException) -> web.Response:
    phrase = HTTPStatus(error.status).phrase
    allow = error.headers.get(hdrs.ALLOW)
    code = re.sub(r"[^a-z]+", "_", phrase.lower())
    return error_reply(error.status, code, phrase.lower(), {hdrs.ALLOW: allow} if allow else None)


async def set_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(SECURITY_HEADERS)
    resource = request.match_info.route.resource
    is_page = resource is not None and resource.canonical in PAGE_ROUTES
    # The panel may be kept but is asked for anew; what the daemon says is true only once.
    response.headers.setdefault(hdrs.CACHE_CONTROL, "no-cache" if is_page else "no-store")
