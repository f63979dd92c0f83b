"""The sheets of KROWL_POLICIES that are in force, read again when they change during a crawl."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from typing import TYPE_CHECKING, NamedTuple

from scrapy.utils.asyncio import run_in_thread

from krowlspider.errors import SettingsError, counted
from krowlspider.frontier.quotas import Quotas
from krowlspider.frontier.shares import address_in, places_of
from krowlspider.job.sheet_files import SheetFiles
from krowlspider.policies.rewrites import rewritten
from krowlspider.policies.sheets import BadPolicies, Policies
from krowlspider.urls.canonical import host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from krowlspider.frontier.entry_queues import Lease
    from krowlspider.frontier.grants import Grants
    from krowlspider.frontier.store.store import Store
    from krowlspider.policies.sheets import HostPolicies

logger = logging.getLogger(__name__)

# Seconds between two checks of the file; a change takes effect after two checks.
_INTERVAL = 1.0
# Bytes of a file: 100,000 sheets with 335 bytes each.
SIZE_MAX = 32 * 1024 * 1024
# Errors of a file that are logged.
_ERRORS_LOGGED = 20


class PolicyVersion(NamedTuple):
    """A text of sheets, its SHA-256 in hexadecimal, and the files that the sheets name."""

    text: bytes
    digest: str
    policies: Policies
    files: SheetFiles


def _no_address(host: str) -> str:
    """Return the address of a host where none is known."""
    return ""


class SitePolicies:
    """Keeps the sheets of a file in force.

    A file that is missing or has an error stops the start. During the crawl, the last sheets stay
    in force then, and ``fault`` says why.

    After the start, a version is read only once two checks in a row have seen it. So a file is not
    read while it is being written.

    ``changes`` are called with each version that is put into force, on the event loop; before that
    ``on_order``, if a new version of the file is the reason. ``written`` is when the file of the
    start was written, in epoch seconds. ``address_of`` returns the IP address of a host, of IPv6
    its /64; "" while it is not known.

    :raises SettingsError: the file cannot be read, or has an error
    """

    def __init__(
        self,
        path: Path,
        *,
        delay_min: float = 0.0,
        address_of: Callable[[str], str] = _no_address,
    ):
        self._path = path
        self._address_of = address_of
        self._delay_min = delay_min
        self.changes: list[Callable[[PolicyVersion], None]] = []
        self.on_order: Callable[[PolicyVersion], None] | None = None
        self.written = 0.0
        # What is wrong with the version of the file that is not in force, the fault that was
        # logged, and what is wrong with the sheets of the cluster; "" for nothing.
        self._file_fault = self._logged = self.cluster_fault = ""
        self.reload_count = 0
        self.failed_count = 0
        # The version of the file that was read, and what the last check has seen.
        self._read_stat: object = None
        self._last: object = None
        try:
            self.version = self._read()
        except OSError as error:
            why = error.strerror or error
            raise SettingsError(f"KROWL_POLICIES {path} cannot be read: {why}") from error
        except BadPolicies as error:
            raise SettingsError(f"KROWL_POLICIES: {error}") from error
        self._set_of()

    of: Callable[[str], HostPolicies | None]
    """Return the sheets of a host; None if none covers it."""

    def _set_of(self) -> None:
        # Looked up for each link and at each pop: only blocks need the address.
        policies = self.version.policies
        self.of = self._of_known if policies.has_blocks else policies.of_host

    def _of_known(self, host: str) -> HostPolicies | None:
        return self.policies.of_host(host, self._address_of(host))

    def permit(self, host: str, address: str, *, is_page: bool) -> bool:
        """Return whether a request may go to an IP address: the sheets for its host, by which it
        was made, are those for the host at this address. The first robots.txt may go to any.

        Otherwise who sets the address of a name could have the credentials of a block sent to it.
        """
        policies = self.version.policies
        if not policies.has_blocks or not ((known := self._address_of(host)) or is_page):
            return True
        return policies.blocks_agree(known, address_in(places_of(address)[0]))

    @property
    def policies(self) -> Policies:
        """Return the sheets in force."""
        return self.version.policies

    def words(self) -> str:
        """Return how many sheets are in force, and of which text."""
        return f"{counted(len(self.policies.sheets), 'sheet')}, {self.version.digest[:12]}"

    # --- what is queued and fetched ---

    def quotas(
        self, store: Store, wall: Callable[[], float], grants: Grants | None = None
    ) -> Quotas:
        """Return what counts the pages of limited hosts, and is asked by the other methods.
        ``grants`` are as in `Quotas`."""
        self.limits = Quotas(store, self._find, wall, grants)
        return self.limits

    def _find(self, host: str) -> HostPolicies | None:
        return self.of(host)

    def reach(self, page: str) -> str | None:
        """Return where links of a page may lead, as in `Scope.refusals`."""
        found = self.of(host_of(page))
        return None if found is None else found.of(page).scope

    @property
    def gives_priorities(self) -> bool:
        """Whether a sheet has a priority."""
        return self.version.policies.gives_priorities

    def priority(self, url: str, host: str) -> int:
        """Return the priority of a link to a normalised URL of a host."""
        found = self.of(host)
        return 0 if found is None else found.of(url).priority or 0

    def rewritten(self, urls: list[str], host_in: Callable[[str], str]) -> list[str]:
        """Return what is fetched in place of the links of a page, each once. ``host_in`` returns
        the host of a URL."""
        if not self.version.policies.rewrites:
            return urls
        made: dict[str, None] = {}
        # Most links of a page lead to one host.
        last, found = None, None
        for url in urls:
            if (host := host_in(url)) != last:
                last, found = host, self.of(host)
            if found is not None and found.rewrites:
                url = rewritten(url, found.of(url))  # noqa: PLW2901
            made[url] = None
        return list(made)

    def refusals(
        self,
        urls: Sequence[str],
        hosts: Sequence[str],
        depth: int,
        reasons: list[str | None],
        *,
        is_given: bool,
        is_requisite: bool,
        is_beyond: bool,
    ) -> list[str | None]:
        """Return the reasons, with those of sheets, for which the URLs of a page are not queued.

        ``is_given``: a person named them, so ``include`` does not hold. ``is_beyond``: they are
        deeper than the crawl's own depth. The words are those of ``reasons``, and depth,
        sheet_depth, sheet_exclude, sheet_include, max_pages, max_bytes, max_seconds.
        """
        made: list[str | None] = []
        is_page = not is_requisite
        # Limits are asked about once for each host and policy of the batch, by the id of a policy
        # that its host's sheets keep.
        seen: dict[str, tuple[HostPolicies | None, dict[int, str]]] = {}
        # Most links of a page lead to one host.
        last, found, limits = None, None, dict[int, str]()
        for url, host, reason in zip(urls, hosts, reasons, strict=True):
            if host != last:
                if (known := seen.get(host)) is None:
                    known = seen[host] = self.of(host), {}
                last, (found, limits) = host, known
            if found is None:
                made.append("depth" if is_beyond else reason)
                continue
            policy = found.of(url) if found.has_paths else found.fixed
            if is_beyond if policy.depth is None else depth > policy.depth:
                made.append("depth" if policy.depth is None else "sheet_depth")
                continue
            if reason is None and (policy.exclude or policy.include):
                reason = policy.refusal(url, is_page=is_page, is_given=is_given) or None  # noqa: PLW2901
            if reason is None:
                if (limit := limits.get(id(policy))) is None:
                    limit = limits[id(policy)] = (
                        self.limits.refusal(found, host, url, is_page=is_page)
                        if policy.is_limited
                        else ""
                    )
                reason = limit or None  # noqa: PLW2901
            made.append(reason)
        return made

    def refusal(self, lease: Lease) -> str | None:
        """Return the reason of a sheet to drop an entry that was popped; "" for none, None if it
        must wait for the other nodes."""
        host, entry = lease.host, lease.entry
        if (found := self.of(host.name)) is None:
            return ""
        policy, is_page = found.of(entry.url), not (entry.request and entry.file)
        if policy.depth is not None and entry.depth > policy.depth:
            return "sheet_depth"
        refused = policy.refusal(entry.url, is_page=is_page, is_given=entry.is_seed)
        is_new = is_page and not entry.is_again
        return refused or self.limits.turn(found, host.name, entry.url, is_page=is_new)

    # --- versions ---

    @property
    def fault(self) -> str:
        """Return what is wrong with sheets that should be in force; "" for nothing."""
        return "; ".join(each for each in (self._file_fault, self.cluster_fault) if each)

    def state(self) -> str:
        """Return what is wrong with sheets that should be in force, or else what is in force."""
        return f"not in force: {self.fault}" if self.fault else f"{self.words()} in force"

    def parse(self, text: bytes) -> PolicyVersion:
        """Return a version of a text; it may take seconds.

        :raises BadPolicies: the text has errors, or a file that it names
        """
        try:
            sheets = Policies.parse(text.decode(), str(self._path), delay_min=self._delay_min)
        except UnicodeDecodeError as error:
            line = text.count(b"\n", 0, error.start) + 1
            raise BadPolicies([f"{self._path} line {line}: not UTF-8"]) from error
        return PolicyVersion(text, hashlib.sha256(text).hexdigest(), sheets, SheetFiles(sheets))

    def use(self, version: PolicyVersion) -> Policies:
        """Put a version into force, and return the sheets before it: `Policies.dismantle` them in a
        thread, or the event loop frees them at once."""
        before, self.version = self.policies, version
        self._file_fault = self._logged = self.cluster_fault = ""
        self._set_of()
        self.reload_count += 1
        logger.info("KROWL_POLICIES: %s of %s in force", self.words(), self._path)
        for change in self.changes:
            change(version)
        return before

    def refuse(self, error: BadPolicies | OSError) -> None:
        """Note a version that cannot be used. The same fault is logged once."""
        texts = error.errors if isinstance(error, BadPolicies) else [error.strerror or str(error)]
        if isinstance(error, OSError):
            # The same file may come back.
            self._read_stat = None
        fault = f"KROWL_POLICIES {self._path}: {texts[0]}"
        self._file_fault = fault
        if fault == self._logged:
            return
        self._logged = fault
        self.failed_count += 1
        for text in texts[:_ERRORS_LOGGED]:
            logger.error(
                "KROWL_POLICIES %s is not in force, the sheets before it are: %s", self._path, text
            )

    def _read(self) -> PolicyVersion:
        if not self._path.is_file() and self._path.exists():
            # Opening a pipe would block until its other end is open.
            raise OSError("not a file")
        with self._path.open("rb") as file:
            stat = os.fstat(file.fileno())
            if stat.st_size > SIZE_MAX:
                raise OSError(f"more than {SIZE_MAX} bytes")
            text = file.read(SIZE_MAX)
        self._read_stat = self._last = _stat_of(stat)
        self.written = stat.st_mtime
        return self.parse(text)

    def look(self) -> PolicyVersion | None:
        """Check the file, and return a new version once it is complete.

        Return None if there is no new version, or if it was seen for the first time.

        :raises OSError: it is missing, cannot be read, is not a regular file, or is too large
        :raises BadPolicies: it has errors
        """
        before = self._last
        self._last = _stat_of(self._path.stat())
        if self._last == self._read_stat or self._last != before:
            return None
        return self._read()

    def reload(self) -> None:
        """Have `watch` read the file again, whether it has changed or not."""
        self._read_stat = None
        self._logged = ""

    async def watch(self) -> None:
        """Put each new version of the file into force, until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL)
            try:
                found = await run_in_thread(self.look)
            except (OSError, BadPolicies) as error:
                self.refuse(error)
                continue
            if found is not None:
                if self.on_order is not None:
                    self.on_order(found)
                await run_in_thread(self.use(found).dismantle)


def _stat_of(stat: os.stat_result) -> tuple[int, int, int]:
    """Return what identifies the content of a file without reading it."""
    return stat.st_ino, stat.st_size, stat.st_mtime_ns
