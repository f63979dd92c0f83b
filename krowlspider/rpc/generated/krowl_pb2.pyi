from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Outcome(_message.Message):
    __slots__ = ("done", "message")
    DONE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    done: bool
    message: str
    def __init__(self, done: _Optional[bool] = ..., message: _Optional[str] = ...) -> None: ...

class SubmitUrlsRequest(_message.Message):
    __slots__ = ("urls", "max_depth", "priority", "max_pages", "tag")
    URLS_FIELD_NUMBER: _ClassVar[int]
    MAX_DEPTH_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    MAX_PAGES_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    urls: _containers.RepeatedScalarFieldContainer[str]
    max_depth: int
    priority: int
    max_pages: int
    tag: str
    def __init__(self, urls: _Optional[_Iterable[str]] = ..., max_depth: _Optional[int] = ..., priority: _Optional[int] = ..., max_pages: _Optional[int] = ..., tag: _Optional[str] = ...) -> None: ...

class SubmitUrlsResponse(_message.Message):
    __slots__ = ("new", "sent", "known", "refused", "bad", "bad_urls")
    class RefusedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NEW_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    BAD_FIELD_NUMBER: _ClassVar[int]
    BAD_URLS_FIELD_NUMBER: _ClassVar[int]
    new: int
    sent: int
    known: int
    refused: _containers.ScalarMap[str, int]
    bad: int
    bad_urls: _containers.RepeatedCompositeFieldContainer[BadUrl]
    def __init__(self, new: _Optional[int] = ..., sent: _Optional[int] = ..., known: _Optional[int] = ..., refused: _Optional[_Mapping[str, int]] = ..., bad: _Optional[int] = ..., bad_urls: _Optional[_Iterable[_Union[BadUrl, _Mapping]]] = ...) -> None: ...

class BadUrl(_message.Message):
    __slots__ = ("index", "reason")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    index: int
    reason: str
    def __init__(self, index: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class StreamResultsRequest(_message.Message):
    __slots__ = ("hosts", "resume_token", "from_start")
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FROM_START_FIELD_NUMBER: _ClassVar[int]
    hosts: _containers.RepeatedScalarFieldContainer[str]
    resume_token: str
    from_start: bool
    def __init__(self, hosts: _Optional[_Iterable[str]] = ..., resume_token: _Optional[str] = ..., from_start: _Optional[bool] = ...) -> None: ...

class StreamResultsResponse(_message.Message):
    __slots__ = ("results", "resume_token", "missed_files", "behind_bytes")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    MISSED_FILES_FIELD_NUMBER: _ClassVar[int]
    BEHIND_BYTES_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[Result]
    resume_token: str
    missed_files: int
    behind_bytes: int
    def __init__(self, results: _Optional[_Iterable[_Union[Result, _Mapping]]] = ..., resume_token: _Optional[str] = ..., missed_files: _Optional[int] = ..., behind_bytes: _Optional[int] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("url", "timestamp", "status", "mime_type", "digest", "warc_filename", "warc_offset", "warc_length", "process")
    URL_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MIME_TYPE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    WARC_FILENAME_FIELD_NUMBER: _ClassVar[int]
    WARC_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WARC_LENGTH_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    url: str
    timestamp: str
    status: int
    mime_type: str
    digest: str
    warc_filename: str
    warc_offset: int
    warc_length: int
    process: str
    def __init__(self, url: _Optional[str] = ..., timestamp: _Optional[str] = ..., status: _Optional[int] = ..., mime_type: _Optional[str] = ..., digest: _Optional[str] = ..., warc_filename: _Optional[str] = ..., warc_offset: _Optional[int] = ..., warc_length: _Optional[int] = ..., process: _Optional[str] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("spider", "folder", "seconds", "done", "page_limit", "queued", "deferred", "hosts", "due", "in_flight", "fetched", "dropped", "statuses", "failed", "archive_bytes", "paused")
    class FetchedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class DroppedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class StatusesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class FailedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    SPIDER_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    PAGE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    DEFERRED_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    DUE_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    FETCHED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    ARCHIVE_BYTES_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    spider: str
    folder: str
    seconds: float
    done: int
    page_limit: int
    queued: int
    deferred: int
    hosts: int
    due: int
    in_flight: int
    fetched: _containers.ScalarMap[str, int]
    dropped: _containers.ScalarMap[str, int]
    statuses: _containers.ScalarMap[str, int]
    failed: _containers.ScalarMap[str, int]
    archive_bytes: int
    paused: str
    def __init__(self, spider: _Optional[str] = ..., folder: _Optional[str] = ..., seconds: _Optional[float] = ..., done: _Optional[int] = ..., page_limit: _Optional[int] = ..., queued: _Optional[int] = ..., deferred: _Optional[int] = ..., hosts: _Optional[int] = ..., due: _Optional[int] = ..., in_flight: _Optional[int] = ..., fetched: _Optional[_Mapping[str, int]] = ..., dropped: _Optional[_Mapping[str, int]] = ..., statuses: _Optional[_Mapping[str, int]] = ..., failed: _Optional[_Mapping[str, int]] = ..., archive_bytes: _Optional[int] = ..., paused: _Optional[str] = ...) -> None: ...

class SetCrawlerStateRequest(_message.Message):
    __slots__ = ("paused", "host")
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    paused: bool
    host: str
    def __init__(self, paused: _Optional[bool] = ..., host: _Optional[str] = ...) -> None: ...

class SetCrawlerStateResponse(_message.Message):
    __slots__ = ("outcome",)
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    outcome: Outcome
    def __init__(self, outcome: _Optional[_Union[Outcome, _Mapping]] = ...) -> None: ...

class UpsertDomainPolicyRequest(_message.Message):
    __slots__ = ("domain", "delay", "blocked", "max_depth", "max_pages", "recrawl_seconds", "include", "exclude", "remove_sheet")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    MAX_DEPTH_FIELD_NUMBER: _ClassVar[int]
    MAX_PAGES_FIELD_NUMBER: _ClassVar[int]
    RECRAWL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_SHEET_FIELD_NUMBER: _ClassVar[int]
    domain: str
    delay: float
    blocked: bool
    max_depth: int
    max_pages: int
    recrawl_seconds: float
    include: _containers.RepeatedScalarFieldContainer[str]
    exclude: _containers.RepeatedScalarFieldContainer[str]
    remove_sheet: bool
    def __init__(self, domain: _Optional[str] = ..., delay: _Optional[float] = ..., blocked: _Optional[bool] = ..., max_depth: _Optional[int] = ..., max_pages: _Optional[int] = ..., recrawl_seconds: _Optional[float] = ..., include: _Optional[_Iterable[str]] = ..., exclude: _Optional[_Iterable[str]] = ..., remove_sheet: _Optional[bool] = ...) -> None: ...

class UpsertDomainPolicyResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[Outcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ...) -> None: ...

class ForceRecrawlRequest(_message.Message):
    __slots__ = ("urls",)
    URLS_FIELD_NUMBER: _ClassVar[int]
    urls: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, urls: _Optional[_Iterable[str]] = ...) -> None: ...

class ForceRecrawlResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[Outcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("url",)
    URL_FIELD_NUMBER: _ClassVar[int]
    url: str
    def __init__(self, url: _Optional[str] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("url", "state", "why", "setting", "host", "ahead", "tries", "robots", "captures", "owner", "page", "sheets", "next_fetch")
    URL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    SETTING_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    TRIES_FIELD_NUMBER: _ClassVar[int]
    ROBOTS_FIELD_NUMBER: _ClassVar[int]
    CAPTURES_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    SHEETS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FETCH_FIELD_NUMBER: _ClassVar[int]
    url: str
    state: str
    why: str
    setting: str
    host: str
    ahead: int
    tries: int
    robots: str
    captures: int
    owner: str
    page: str
    sheets: _containers.RepeatedScalarFieldContainer[str]
    next_fetch: str
    def __init__(self, url: _Optional[str] = ..., state: _Optional[str] = ..., why: _Optional[str] = ..., setting: _Optional[str] = ..., host: _Optional[str] = ..., ahead: _Optional[int] = ..., tries: _Optional[int] = ..., robots: _Optional[str] = ..., captures: _Optional[int] = ..., owner: _Optional[str] = ..., page: _Optional[str] = ..., sheets: _Optional[_Iterable[str]] = ..., next_fetch: _Optional[str] = ...) -> None: ...

class ListHostsRequest(_message.Message):
    __slots__ = ("sort", "limit", "state")
    SORT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    sort: str
    limit: int
    state: str
    def __init__(self, sort: _Optional[str] = ..., limit: _Optional[int] = ..., state: _Optional[str] = ...) -> None: ...

class ListHostsResponse(_message.Message):
    __slots__ = ("hosts",)
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    hosts: _containers.RepeatedCompositeFieldContainer[Host]
    def __init__(self, hosts: _Optional[_Iterable[_Union[Host, _Mapping]]] = ...) -> None: ...

class Host(_message.Message):
    __slots__ = ("host", "queued", "done", "dropped", "delay", "due_in", "errors", "deferred")
    HOST_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    DUE_IN_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    DEFERRED_FIELD_NUMBER: _ClassVar[int]
    host: str
    queued: int
    done: int
    dropped: int
    delay: float
    due_in: float
    errors: int
    deferred: bool
    def __init__(self, host: _Optional[str] = ..., queued: _Optional[int] = ..., done: _Optional[int] = ..., dropped: _Optional[int] = ..., delay: _Optional[float] = ..., due_in: _Optional[float] = ..., errors: _Optional[int] = ..., deferred: _Optional[bool] = ...) -> None: ...

class BlockHostRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class BlockHostResponse(_message.Message):
    __slots__ = ("outcome",)
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    outcome: Outcome
    def __init__(self, outcome: _Optional[_Union[Outcome, _Mapping]] = ...) -> None: ...

class UnblockHostRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class UnblockHostResponse(_message.Message):
    __slots__ = ("outcome",)
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    outcome: Outcome
    def __init__(self, outcome: _Optional[_Union[Outcome, _Mapping]] = ...) -> None: ...
