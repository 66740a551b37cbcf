"""Talking to the daemon, synchronously, with nothing but the standard library."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, Request, build_opener

from pipeline import errors
from pipeline.cli.outcome import DaemonUnreachable, Failed, Refused
from pipeline.texts import Texts

TIMEOUT = 10.0
BODY_MAX = 16 << 20


class _StayHere(HTTPRedirectHandler):
    """A redirect would carry the token to wherever it points."""

    def redirect_request(self, *_: Any) -> None:
        return None


def opener() -> OpenerDirector:
    return build_opener(ProxyHandler({}), _StayHere())


class Client:
    def __init__(self, url: str, token: str, texts: Texts) -> None:
        self.url = url
        self._token = token
        self._texts = texts
        self._opener = opener()

    def get(self, path: str, **query: str | int | None) -> dict[str, Any]:
        return self._call("GET", path, query, None)

    def post(self, path: str, body: dict[str, Any], **query: str | int | None) -> dict[str, Any]:
        return self._call("POST", path, query, json.dumps(body).encode())

    def _call(
        self, method: str, path: str, query: dict[str, str | int | None], body: bytes | None
    ) -> dict[str, Any]:
        given = {name: value for name, value in query.items() if value is not None}
        target = self.url + path + (f"?{urlencode(given)}" if given else "")
        try:
            with self._opener.open(self._request(method, target, body), timeout=TIMEOUT) as answer:
                return self._read(answer.read(BODY_MAX))
        except HTTPError as error:
            with error:
                raise self._refusal(error) from None
        except (URLError, OSError, http.client.HTTPException, ValueError) as error:
            why = getattr(error, "reason", None) or error or type(error).__name__
            raise DaemonUnreachable(self._texts.say("cli.unreachable", url=self.url, why=why)) from None

    def _request(self, method: str, target: str, body: bytes | None) -> Request:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        return Request(target, data=body, headers=headers, method=method)

    def _read(self, data: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(data)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise Failed(self._texts.say("cli.not_ours", url=self.url))
        return answer

    def _refusal(self, error: HTTPError) -> Refused:
        try:
            told = json.loads(error.read(BODY_MAX))["error"]
            why, code = told["message"], told["code"]
        except (OSError, ValueError, KeyError, TypeError):
            why, code = f"HTTP {error.code}", ""
        return Refused(self._texts.say("cli.refused", why=why), str(code))


def post_once(url: str, params: dict[str, str], body: bytes, timeout: float) -> tuple[int, bytes]:
    """For `alert test`, which must work without a daemon. Errors carry no address: it holds the key."""
    request = Request(
        f"{url}?{urlencode(params)}", data=body, headers={"Content-Type": "application/json"}, method="POST"
    )
    try:
        with opener().open(request, timeout=timeout) as answer:
            return answer.status, answer.read(BODY_MAX)
    except HTTPError as error:
        with error:
            return error.code, error.read(BODY_MAX)
    except TimeoutError:
        raise errors.TimedOut(f"{timeout:g} s") from None
    except (URLError, OSError, http.client.HTTPException) as error:
        raise errors.Unreachable(type(error).__name__) from None
