"""The Gemini client: each call opens a connection, checks its certificate, and makes one exchange.

No client certificate is ever shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.fetch.dial import Admit, anywhere
from krowlspider.fetch.errors import ProtocolBroken
from krowlspider.fetch.http.head import Origin
from krowlspider.gemini.protocol import SCHEME, request_line, server_of
from krowlspider.gemini.reader import AnswerReader

if TYPE_CHECKING:
    from krowlspider.fetch.client import Client
    from krowlspider.fetch.errors import Exchange, Observer, Peer
    from krowlspider.fetch.http.head import Proxy
    from krowlspider.fetch.memory import FetchMemory, Spills
    from krowlspider.gemini.certificates import CertificatePins


def origin_of(url: str) -> Origin:
    """Return the server of a gemini URL. Raises ValueError."""
    target = server_of(url)
    return Origin(SCHEME, target.host, target.port)


class GeminiClient:
    """Fetches gemini URLs. ``client`` dials and has the limits; its `hang_up` and `close` end
    these exchanges too."""

    def __init__(self, client: Client, certificates: CertificatePins) -> None:
        self._client = client
        self._certificates = certificates

    async def fetch(
        self,
        url: str,
        *,
        timeout: float,
        max_size: int,
        observer: Observer | None = None,
        admit: Admit = anywhere,
        linked: bool = False,
        memory: FetchMemory,
        spills: Spills | None = None,
        proxy: Proxy | None = None,
    ) -> Exchange:
        """Make one exchange and return it; its ``version`` is empty.

        ``url`` is a normalised gemini URL. The other arguments are as in
        `krowlspider.fetch.client.Client.fetch`. Redirects are left to the caller. Nothing is sent
        to a server whose certificate is refused.

        :raises CertificateRefused: the server shows another certificate than before
        :raises NoCloseNotify: TLS ended without close_notify, so the body may be cut
        :raises ProtocolBroken: the answer has a malformed header, or the URL cannot be requested
        :raises FetchError: as of `Client.fetch`
        :raises AddressBusy: the request may go to none of the host's addresses now
        """
        try:
            request, origin, target = request_line(url), origin_of(url), server_of(url)
        except ValueError as error:
            raise ProtocolBroken(str(error)) from error

        def check(peer: Peer) -> None:
            self._certificates.check(target.server, peer.certificate)

        return await self._client.exchange(
            origin if proxy is None else origin._replace(proxy=proxy),
            url,
            request,
            AnswerReader(max_size, observer),
            check=check,
            timeout=timeout,
            admit=admit,
            linked=linked,
            memory=memory,
            spills=spills,
        )
