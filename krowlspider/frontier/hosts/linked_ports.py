"""Which hosts with a port of their own links may lead to.

With links and wildcard names, one page could have every port of a stranger's machine asked. So of
the ports in a range of KROWL_PORTS, each host name has one that links lead to: the first that is
found. It is kept on disk.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from krowlspider.frontier.store.schema import host_key, linked_key
from krowlspider.frontier.store.store import put
from krowlspider.urls.host import name_of, port_of

if TYPE_CHECKING:
    from krowlspider.frontier.store.store import Store
    from krowlspider.urls.host import Ports

# Hosts kept in memory, about 150 bytes each: one that is not there takes two reads.
_HOSTS_IN_MEMORY = 65_536


class LinkedPorts:
    """The ports of hosts that links may lead to. A host that has a record came from a person, or a
    link led to it before."""

    def __init__(self, store: Store, ports: Ports):
        self._store = store
        self._ports = ports
        self.admitted: dict[str, bool] = {}
        """Some of the hosts that links may lead to; True for those whose port in a range was found
        by a link. Others are on disk: `admits` knows them all."""

    def admits(self, host: str) -> bool:
        """Return whether a link may lead to a host with a port. If so, and the port is in a range,
        links lead to no other such port of its host name from now on. This holds after a restart
        too."""
        if host in self.admitted:
            return True
        by_link = self._by_link(host)
        if by_link is None:
            return False
        self._remember(host, by_link=by_link)
        return True

    def is_linked(self, host: str) -> bool:
        """Return whether a link chose the port of this host, from a range."""
        if ":" not in host:
            return False
        by_link = self.admitted.get(host)
        if by_link is None:
            port = port_of(host)
            by_link = port is not None and self._noted(host) == port
            self._remember(host, by_link=by_link)
        return by_link

    def _by_link(self, host: str) -> bool | None:
        """Return the value for ``admitted``; None where no link may lead to the host. Write the
        port of a host name for which none is kept yet."""
        port = port_of(host)
        if port is None or self._ports.lists(port):
            return False
        noted = self._noted(host)
        if noted == port:
            return True
        if self._store.read((host_key(host),))[0] is not None:
            return False
        if noted is not None or not self._ports.spans(port):
            return None
        put(self._store, linked_key(name_of(host)), port.to_bytes(2, "big"))
        return True

    def _noted(self, host: str) -> int | None:
        """Return the port that is kept for the name of a host; None without one."""
        saved = self._store.read((linked_key(name_of(host)),))[0]
        return None if saved is None else int.from_bytes(saved, "big")

    def _remember(self, host: str, *, by_link: bool) -> None:
        self.admitted[host] = by_link
        if len(self.admitted) > _HOSTS_IN_MEMORY:
            for oldest in list(islice(self.admitted, _HOSTS_IN_MEMORY // 10)):
                del self.admitted[oldest]
