"""Who may load, unload and scale models: one check for every way in, deny by default.

Writing to a repository, or choosing what is loaded from it, amounts to running code. So the verbs need the mode
`explicit`, and beyond loopback a token. On loopback a browser is the danger: pages of other sites can send requests to
it, and by DNS rebinding under names of their own.
"""

import hmac
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from gateway.control import IndexEntry, ModelControl
from gateway.errors import ForeignRequestError, TokenError
from gateway.settings import Settings
from models.errors import ControlNotAllowedError

RawHeaders = Sequence[tuple[bytes, bytes]]
"""As ASGI gives them: names in lower case, repeated ones too."""

_MIN_TOKEN_BYTES = 16
_MAX_TOKEN_BYTES = 4096
_TOKEN = re.compile(rb"[!-~]+")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:/?#@\[\]]+)(?::[0-9]{1,5})?")


class ControlAccessError(Exception):
    """The server cannot start like that: anybody could load models, or nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlAccess:
    """Decides about requests that change which models are served. The default allows none.

    Attributes:
        mode: The control mode; only `explicit` has such verbs at all.
        address: What the server listens on.
        token: What a request must bring; None: nothing, which is enough on loopback only.
    """

    mode: str = "none"
    address: str = "127.0.0.1"
    token: bytes | None = field(default=None, repr=False)

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """As the settings say. Reads the token's file.

        Raises:
            ControlAccessError: The file cannot be read, or holds no token; or there is none, and there must be.
        """
        token = None if settings.control_token_file is None else _read_token(settings.control_token_file)
        access = cls(mode=settings.model_control_mode, address=settings.http_address, token=token)
        if access.is_allowed and token is None:
            _check_addresses(settings)
        return access

    @property
    def is_allowed(self) -> bool:
        """Whether there are such verbs."""
        return self.mode == "explicit"

    def check(self, headers: RawHeaders) -> None:
        """Let a control verb pass.

        Args:
            headers: All of the request's.

        Raises:
            ControlNotAllowedError: The server does not run in the mode `explicit`.
            ForeignRequestError: It comes from a page of another site.
            TokenError: It lacks the token.
        """
        if not self.is_allowed:
            raise ControlNotAllowedError
        host = (_only(headers, "Host") or b"").decode("latin-1").lower()
        if is_loopback(self.address) and not self._is_own(host):
            raise ForeignRequestError("Host", host, "this server's own address, e.g. localhost")
        origin = _only(headers, "Origin")
        if origin is not None and origin.decode("latin-1").lower() not in {f"http://{host}", f"https://{host}"}:
            raise ForeignRequestError("Origin", origin.decode("latin-1"), "none, or this server's own")
        self._check_token(_only(headers, "Authorization") or b"")

    def _is_own(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        name = match[1].strip("[]") if match else ""
        return name == self.address or is_loopback(name)

    def _check_token(self, authorization: bytes) -> None:
        if self.token is None:
            if not is_loopback(self.address):  # not to be reached, and not to be relied on
                raise TokenError
            return
        scheme, _, found = authorization.partition(b" ")
        # Compared in constant time: how long it takes says nothing about how much of a guess was right.
        if scheme.lower() != b"bearer" or not hmac.compare_digest(found.strip(), self.token):
            raise TokenError


class GuardedControl:
    """The verbs behind the check: there is no other way to them.

    Args:
        control: Does what is asked.
        access: Decides who may ask.
    """

    def __init__(self, control: ModelControl, access: ControlAccess) -> None:
        self._control = control
        self._access = access

    @property
    def mode(self) -> str:
        """The control mode."""
        return self._access.mode

    async def index(self) -> Sequence[IndexEntry]:
        """See `ModelControl`; it changes nothing, so everyone may read it."""
        return await self._control.index()

    def permitted(self, headers: RawHeaders) -> ModelControl:
        """The verbs, if the request with these headers may have them; else raises what `ControlAccess.check` does."""
        self._access.check(headers)
        return self._control


def permitted(control: GuardedControl | None, headers: RawHeaders) -> ModelControl:
    """The verbs, if the server has them and this request may use them; raises what `ControlAccess.check` does."""
    if control is None:
        raise ControlNotAllowedError
    return control.permitted(headers)


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address.lower() == "localhost"


def _check_addresses(settings: Settings) -> None:
    """Raise ControlAccessError if others than this machine can reach a port."""
    addresses = [settings.http_address]
    if settings.allow_grpc and settings.grpc_address:
        addresses.append(settings.grpc_address)
    for address in addresses:
        if not is_loopback(address):
            raise ControlAccessError(
                f"--model-control-mode=explicit on {address} would let everyone load models: give "
                "--control-token-file, or listen on 127.0.0.1"
            )


def _only(headers: RawHeaders, name: str) -> bytes | None:
    """A header's value; None if there is none. Of two, others might have looked at the other one."""
    key = name.lower().encode()
    found = [value for header, value in headers if header == key]
    if len(found) > 1:
        raise ForeignRequestError(name, f"{len(found)} times", "it once")
    return found[0] if found else None


def _read_token(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            token = opened.read(_MAX_TOKEN_BYTES + 1).strip()
    except OSError as error:
        raise ControlAccessError(f"--control-token-file: cannot be read: {error.strerror}") from error
    if not _TOKEN.fullmatch(token) or not _MIN_TOKEN_BYTES <= len(token) <= _MAX_TOKEN_BYTES:
        raise ControlAccessError(
            f"--control-token-file: found {len(token)} bytes, expected one token of {_MIN_TOKEN_BYTES} to "
            f"{_MAX_TOKEN_BYTES} printable characters without blanks, e.g. of `openssl rand -hex 32`"
        )
    return token
