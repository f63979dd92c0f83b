"""The table of settings: each with its reason, type, check, unit and default.

Nothing else in the project sets a default. The check of a setting is in its annotation; without
one, a bool is True or False. `krowlspider.config.validation` reads the annotations, and
docs/settings.md is made of this module. Override with ``-s NAME=VALUE``, with scrapyd's
``-d setting=NAME=VALUE``, with a variable of the environment, or in a settings module of your own.
An unknown or invalid ``KROWL_`` setting stops the start (``krowlspider.config.validation``).
"""

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

from scrapy.settings import default_settings

from krowlspider import __version__
from krowlspider.config import checks, scrapy_politeness
from krowlspider.config.kinds import integer, number, one_of, seconds, size

# With its settings, this module too serves as the settings of a project.
from krowlspider.project import *

# --- Project --------------------------------------------------------------------------------------

# Who runs this crawl: an e-mail address or a URL where a site owner can reach you. It is part of
# the User-Agent and of every WARC file. There is no default, so that nobody crawls without a name,
# and a placeholder such as you@example.org is refused.
KROWL_CONTACT: Annotated[str | None, checks.contact] = None
# The User-Agent of every request; {contact} is replaced by KROWL_CONTACT.
USER_AGENT: Annotated[str, checks.user_agent] = f"krowlspider/{__version__} (+{{contact}})"
# The product token looked for in robots.txt (RFC 9309, section 2.2.1).
ROBOTSTXT_USER_AGENT: Annotated[str, checks.product_token] = "krowlspider"
# False ignores robots.txt: only for an archive of your own site.
ROBOTSTXT_OBEY: bool = True

# --- Seams with Scrapy's engine -------------------------------------------------------------------

# Each must be this class or one derived from it.
SCHEDULER: Annotated[str, checks.scheduler] = "krowlspider.engine.scheduler.Scheduler"
DUPEFILTER_CLASS: Annotated[str, checks.dupefilter] = "krowlspider.engine.dupefilter.DupeFilter"
DOWNLOADER: Annotated[str, checks.downloader] = "krowlspider.engine.downloader.Downloader"
# No other scheme: a link must not read local files or reach servers of other protocols. A data: URL
# is not fetched; only a spider's own request may have one.
DOWNLOAD_HANDLERS_BASE = {
    "data": "scrapy.core.downloader.handlers.datauri.DataURIDownloadHandler",
    "gemini": "krowlspider.gemini.handler.GeminiHandler",
    "http": "krowlspider.engine.handler.DownloadHandler",
    "https": "krowlspider.engine.handler.DownloadHandler",
}
TWISTED_REACTOR: Annotated[str, checks.reactor] = (
    "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
)
# uvloop is faster. It has no build for Windows or PyPy: there asyncio's own loop is used.
try:
    version("uvloop")
except PackageNotFoundError:
    ASYNCIO_EVENT_LOOP = None
else:
    ASYNCIO_EVENT_LOOP = "uvloop.Loop"

# --- Concurrency and limits of one fetch ----------------------------------------------------------

# Requests in flight, all hosts together.
CONCURRENT_REQUESTS: Annotated[int, integer(1, "requests")] = 256
# Items of one response processed at a time. Above 1, Scrapy starts as many tasks for each response.
CONCURRENT_ITEMS: Annotated[int, integer(1, "items")] = 1
# Bytes of responses in callbacks before the engine stops popping. Pages that become items wait in
# their callback for their WARC offset, so as many bytes may wait for the WARC writer.
SCRAPER_SLOT_MAX_ACTIVE_SIZE: Annotated[int, size(1)] = 64 * 1024 * 1024
# Seconds for a whole fetch, from the name look-up to the last byte.
DOWNLOAD_TIMEOUT: Annotated[float, seconds(above=True)] = 60
# Seconds to connect to a host, TLS included, at all its addresses together: see network.md.
KROWL_CONNECT_TIMEOUT: Annotated[float, seconds(above=True)] = 10.0
# Bytes of a body, as received and again after decoding. A page with more is dropped; its WARC
# record has the bytes that came, marked as truncated.
DOWNLOAD_MAXSIZE: Annotated[int, size(1)] = 10 * 1024 * 1024
# Bytes of all bodies in memory: received, decoded, in callbacks, waiting for the archive. What
# has come of a response over 512 KB is in a file. Over the limit nothing more is fetched and
# large bodies wait (krowl/memory/waits_count). The process needs 0.2 GB and the memory of the
# frontier besides. 0: a quarter of the memory of the machine or of the container.
KROWL_MEMORY_LIMIT: Annotated[int, size(0)] = 0
# 0: no warning for large bodies, which are ordinary in a broad crawl.
DOWNLOAD_WARNSIZE = 0
# Most requests to one host in succession, each after its delay, before hosts that have waited
# longer get a turn. With 10, nine of ten use an open connection. Only where the delay is shorter
# than 15 s, for which a connection is kept. 1: hosts take turns.
KROWL_SESSION_REQUESTS: Annotated[int, integer(1, "requests")] = 10

# --- Which addresses may be fetched ---------------------------------------------------------------

# Networks (CIDR) that may be fetched although they are not public: intranets, tests. Every other
# loopback, private, link-local (cloud metadata) or reserved address is refused when connecting.
KROWL_ALLOW_ADDRESSES: Annotated[list[str], checks.networks] = []
# Ports that links, redirects and sitemaps may lead to. A single port ("8080") is allowed on each
# host. Of a range ("1024-65535") each host name gets one port, the first that is found, and each
# address gets 8. Seeds and the requests of your own spiders may have any port but those that
# browsers refuse (22, 25, 6667 ...).
KROWL_PORTS: Annotated[list[str], checks.ports] = ["80", "443", "8080", "8443", "1024-65535"]
# Fixed names, used before any resolver: {"name": "address"} or {"*.suffix": "address"}.
KROWL_RESOLVE: Annotated[dict[str, str], checks.names_to_addresses] = {}
# DNS servers ("1.2.3.4" or "1.2.3.4:53"); empty: those of /etc/resolv.conf.
KROWL_DNS_SERVERS: Annotated[list[str], checks.dns_servers] = []
# Seconds for one name look-up with all its tries.
KROWL_DNS_TIMEOUT: Annotated[float, seconds(above=True)] = 5.0
# Names kept in the DNS cache; about 300 bytes each.
DNSCACHE_SIZE: Annotated[int, integer(1, "names")] = 100_000

# --- Politeness -----------------------------------------------------------------------------------

# Delay between two requests to a host: this times the moving average of its latency ...
KROWL_DELAY_FACTOR: Annotated[float, number(0, "times the latency")] = 5.0
# ... at least so many seconds, or DOWNLOAD_DELAY or the delay of the host in DOWNLOAD_SLOTS where
# that is longer ...
KROWL_DELAY_MIN: Annotated[float, seconds()] = 0.25
# ... and at most so many; DOWNLOAD_DELAY, a Crawl-delay and backoff may be longer.
KROWL_DELAY_MAX: Annotated[float, seconds()] = 30.0
# The URLs of a host whose Crawl-delay is longer are dropped with the reason "crawl_delay".
KROWL_CRAWL_DELAY_MAX: Annotated[float, seconds()] = 300.0
# Requests in flight to one registrable domain, all its hosts together.
KROWL_DOMAIN_CONCURRENCY: Annotated[int, integer(1, "requests")] = 2
# Requests in flight to one IP address, or to the /64 of an IPv6 one, all hosts there together: one
# machine may serve thousands of hosts. A block of addresses (IPv4 /24, IPv6 /48) may have a quarter
# of CONCURRENT_REQUESTS. 0: no limit for either. In a cluster each node takes its part of the limit
# of an address, one request at least.
KROWL_IP_CONCURRENCY: Annotated[int, integer(0, "requests")] = 8
# Seconds between two requests to one IP address, or /64, all hosts there together, robots.txt
# included. When three hosts there in a row answer 429 or 503, the address backs off as a host does;
# their Retry-After counts for at most 60 s there. 0: neither delay nor backoff. In a cluster of n
# nodes each of them waits n times as long.
KROWL_IP_DELAY_MIN: Annotated[float, seconds(high=60)] = 0.1
# Seconds until a robots.txt is fetched again (RFC 9309, section 2.4: at most 24 hours).
KROWL_ROBOTS_TTL: Annotated[float, seconds(above=True, high=86_400)] = 86_400.0
# Retries of a page after a transport error or a status in RETRY_HTTP_CODES.
RETRY_TIMES: Annotated[int, integer(0, "times")] = 2
# Seconds from a failed try of a page to the next. The delay doubles with each try, up to an hour.
# Other pages of the host go on meanwhile.
KROWL_RETRY_DELAY: Annotated[float, seconds()] = 30.0
# Statuses that may be different next time. 429 and 503 ask for rest: ten more tries, each later.
RETRY_HTTP_CODES: Annotated[list[int], checks.statuses] = [500, 502, 504, 522, 524, 408]
# Errors after which a page is retried: Scrapy's own, without those of its download handlers.
RETRY_EXCEPTIONS = [
    "scrapy.exceptions.CannotResolveHostError",
    "scrapy.exceptions.DownloadConnectionRefusedError",
    "scrapy.exceptions.DownloadFailedError",
    "scrapy.exceptions.DownloadTimeoutError",
    "scrapy.exceptions.ResponseDataLossError",
]
# Redirects followed in one chain.
REDIRECT_MAX_TIMES: Annotated[int, integer(0, "times")] = 10

# --- Gemini ---------------------------------------------------------------------------------------

# True: gemini URLs are crawled too, as seeds and as links, by the same queue, politeness and
# archive: docs/gemini.md. All nodes of a cluster need the same value.
KROWL_GEMINI: bool = False
# What is done about a Gemini server whose certificate is another than before. refuse: nothing is
# asked there until the known one has expired. accept: the new one is taken in its place.
KROWL_GEMINI_CERTIFICATES: Annotated[str, one_of("refuse", "accept")] = "refuse"
# The least seconds between two requests to a Gemini server, where the other delays are shorter.
KROWL_GEMINI_DELAY_MIN: Annotated[float, seconds()] = 1.0
# Which redirects are followed. same: those that stay with Gemini, or with the web. any: also those
# from one to the other.
KROWL_GEMINI_REDIRECTS: Annotated[str, one_of("same", "any")] = "same"

# --- Signed identity ------------------------------------------------------------------------------

# File of the Ed25519 private key, PEM or JWK, by which requests are signed (Web Bot Auth), so that
# a site can verify who crawls it: docs/identity.md. `scrapy identity --new FILE` makes one. None:
# nothing is signed.
KROWL_SIGN_KEY: Annotated[str | None, checks.sign_key] = None
# The https origin that serves the directory with the public key, such as https://bot.example.org.
KROWL_SIGN_AGENT: Annotated[str, checks.sign_agent] = ""
# challenged: requests to a host are signed once it has asked for it by Accept-Signature, or has
# answered 401, 403 or 429. always: every request.
KROWL_SIGN: Annotated[str, one_of("challenged", "always")] = "challenged"
# Seconds from the sending of a request until its signature expires, for one whole second or more.
KROWL_SIGN_EXPIRY: Annotated[float, number(1, "seconds", high=86_400)] = 60.0

# --- Sitemaps -------------------------------------------------------------------------------------

# True: the broad spider reads the sitemaps that a robots.txt names, and /sitemap.xml. With
# ROBOTSTXT_OBEY = False it reads none. The limits for pages hold for sitemaps, except that they are
# no pages for max_pages, and may have 50 MB.
KROWL_SITEMAPS: bool = True

# --- Opt-outs -------------------------------------------------------------------------------------

# True: the broad spider also fetches /ai.txt and /.well-known/tdmrep.json of each host of which it
# has fetched a page. In these files a site forbids training models on its pages. They are archived
# for `scrapy corpus`, which honours them. They are two more requests for each host, and no pages
# for max_pages.
KROWL_OPT_OUTS: bool = False

# --- Requisites -----------------------------------------------------------------------------------

# The files that a page needs to be shown: pictures, style sheets, scripts, fonts, media. "none";
# "site": those of the page's registrable domain; "any": those of any site. They are fetched soon
# after their page, under all rules of their hosts. -a allow, same_host and same_domain do not hold
# for them, and they are no pages for max_pages. For archives that are looked at.
KROWL_REQUISITES: Annotated[str, one_of("none", "site", "any")] = "none"

# --- Browser --------------------------------------------------------------------------------------

# True: a page whose request has meta["playwright"] is opened in Chromium after it was fetched, and
# whatever it asks for there is fetched by the crawl, archived, and under all rules of its hosts:
# docs/browser.md. It needs scrapy-playwright. Not in a cluster.
KROWL_BROWSER: bool = False
# Regular expressions. Pages in whose URL one of them is found are opened too: "." for all pages.
KROWL_BROWSER_URLS: Annotated[list[str], checks.expressions] = []
# Pages open at a time. Each takes 50 to 300 MB in Chromium. As many more may wait; then no further
# page is fetched.
KROWL_BROWSER_PAGES: Annotated[int, integer(1, "pages", high=64)] = 4
# Seconds in which a page may load. All that it asks of a host comes one after the other, each after
# the delay: 30 files of a host take a minute at 2 s. Then the page counts as it is.
KROWL_BROWSER_TIMEOUT: Annotated[float, seconds(above=True, high=3600)] = 300.0

# --- Frontier -------------------------------------------------------------------------------------

# Folder of the crawl: frontier, seen set, WARC files; {spider} is replaced by the name of the
# spider. None: a temporary folder, named in the log.
JOBDIR = None
# Seconds between two group commits: sync the WARC files, then remove their pages from the queue.
KROWL_COMMIT_INTERVAL: Annotated[float, seconds(above=True, high=60)] = 1.0
# URLs queued for one host before its overflow. Links for which there is no place are queued behind
# all other URLs of the host. Seeds, start requests, imported URLs and what a site's own sitemaps
# name need no place. Links of other domains' pages may take half of these places, and come after
# those of the host's own pages, in the overflow too.
KROWL_HOST_QUEUE_MAX: Annotated[int, integer(1, "URLs")] = 100_000
# URLs queued for one registrable domain in the whole crawl, dropped ones not counted. 0: no limit.
# A limit costs each page a look-up and a write for each domain that its new links lead to.
KROWL_DOMAIN_BUDGET: Annotated[int, integer(0, "URLs")] = 0
# URLs queued in all before the overflow: further ones are queued behind all other URLs of their
# host. Each takes about 100 bytes of disk with its seen key. With less than twice KROWL_DISK_FLOOR
# free, further ones are dropped with the reason "frontier", seeds and imported URLs excepted.
KROWL_FRONTIER_MAX: Annotated[int, integer(1, "URLs")] = 50_000_000
# True: the frontier keeps a row of each page that was fetched: URL, status, times, validators,
# digest, record in the archive, seed. `scrapy frontier JOBDIR --pages` prints them. Each takes
# about 130 bytes of disk.
KROWL_PAGES: bool = True
# Whether pages are fetched again. off: no. once: this start fetches new URLs, and once each page
# that an earlier start has fetched; then it ends. continuous: each page as often as it changes,
# until the crawl is stopped. The requests are conditional. Except with off, rows are kept even
# without KROWL_PAGES.
KROWL_RECRAWL: Annotated[str, one_of("off", "once", "continuous")] = "off"
# With KROWL_RECRAWL=continuous, the part of a host's requests that goes to pages fetched again
# while the host has new URLs queued too. While it has none, all its requests may go to such pages.
KROWL_RECRAWL_SHARE: Annotated[float, number(0, "of 1", high=1, above=True)] = 0.5
# True: with KROWL_RECRAWL=continuous, the broad spider takes submissions of IndexNow at /indexnow
# of the live page: URLs that a site says have changed, with a key that a file of the site has. They
# bring pages forward, and unknown ones are queued as links are.
KROWL_INDEXNOW: bool = False
# True: each positive of the filter is looked up on disk. The seen set is exact then.
KROWL_SEEN_VERIFY: bool = False
# Characters of the longest URL that is queued, 16,384 at most; 0: 16,384.
URLLENGTH_LIMIT: Annotated[int, integer(0, "characters")] = 2048

# --- Scope and traps ------------------------------------------------------------------------------

# File of regular expressions, one a line, "#" for comments. A URL that one of them matches anywhere
# is not fetched, whether it is a seed or queued already. A line that is a name, an address or the
# root URL of a host excludes all its URLs: at its port if it names one, else at all ports. A
# registrable domain excludes all names below it too. The file is read again when it changes.
# Avoid expressions that backtrack without end, such as (a+)+$: one can stop the crawl. None: no
# exclusions.
KROWL_EXCLUDE: Annotated[str | None, checks.file] = None
# File of sheets in TOML, each with settings of its own for the sites that it names: see
# policies.md. The file is read again when it changes. None: the settings hold for all sites.
KROWL_POLICIES: Annotated[str | None, checks.file] = None
# File extensions without text; links to them are dropped. Sitemaps may still be gz; pdf is
# text. An empty list drops none.
KROWL_SKIP_EXTENSIONS: Annotated[list[str], checks.extensions] = [
    *("7z", "bz2", "gz", "jar", "lz", "lzma", "rar"),
    *("tar", "tbz2", "tgz", "txz", "xz", "zip", "zst"),
    *("dmg", "img", "iso", "ova", "qcow2", "vdi", "vhd", "vmdk"),
    *("apk", "appimage", "bin", "cab", "deb", "dll", "exe", "ipa", "msi", "pkg", "rpm", "snap"),
    *("aac", "aif", "aiff", "flac", "m4a", "mid", "midi"),
    *("mp3", "oga", "ogg", "opus", "wav", "wma"),
    *("3gp", "avi", "flv", "m4v", "mkv", "mov", "mp4", "mpeg", "mpg", "ogv", "webm", "wmv"),
    *("eot", "otf", "ttf", "woff", "woff2"),
    *("avif", "bmp", "gif", "heic", "ico", "jpeg", "jpg"),
    *("png", "psd", "svg", "tif", "tiff", "webp"),
]
# True: a URL without an extension of HTML pages (html, php ...) is asked by HEAD before GET, unless
# it ends in a slash or is a seed. A file of a type that KROWL_SKIP_EXTENSIONS names is dropped then
# with the reason "head_type". Each HEAD is a request of its own, with the delay of its host, and is
# not archived.
KROWL_HEAD: bool = False
# True follows links with rel=nofollow, and those of pages whose meta robots or X-Robots-Tag says
# nofollow.
KROWL_FOLLOW_NOFOLLOW: bool = False

# --- Hooks ----------------------------------------------------------------------------------------

# Path of a class derived from krowlspider.hooks.Hooks, "my.module.Hooks": its methods see the crawl
# and decide about links, delays, fetches, pages and records: docs/hooks.md. None: there are none.
KROWL_HOOKS: Annotated[str | None, checks.hooks] = None
# Seconds for which a hook that is a coroutine may take, fetch excepted, which has DOWNLOAD_TIMEOUT.
KROWL_HOOKS_TIMEOUT: Annotated[float, seconds(above=True, high=3600)] = 10.0

# --- Cluster --------------------------------------------------------------------------------------

# Name of the cluster, the same at all its nodes.
KROWL_CLUSTER: Annotated[str, checks.cluster_name] = "krowlspider"
# Id of this node: 1 to 63 letters, digits, '.', '_' and '-'. The id decides which domains it owns,
# so a node that comes back must have the id it had. Empty: the name of the machine.
KROWL_NODE_ID: Annotated[str, checks.node_id] = ""
# URL of Consul's agent, http://127.0.0.1:8500; Consul knows which nodes live. For a certificate
# authority of your own set CONSUL_CACERT in the environment. Or unix:///PATH, where PATH is
# redis/sockets/register in the JOBDIR of `scrapy node`. Empty: no cluster.
KROWL_CONSUL: Annotated[str, checks.consul] = ""
# ACL token with the rights to write keys below krowlspider/, sessions, and the service
# krowlspider-KROWL_CLUSTER. A command line is visible to all users of a machine, so give secrets in
# the environment, or in a file that NAME_FILE names. NAME and NAME_FILE together stop the start.
KROWL_CONSUL_TOKEN: Annotated[str, checks.consul_token] = ""
KROWL_CONSUL_TOKEN_FILE: Annotated[str, checks.file_of_secret] = ""
# Seconds of a lease, at least Consul's 10. A node that cannot renew it stops after four fifths, and
# is dead for the others within twice this. A shorter lease makes a busy machine look dead.
KROWL_CONSUL_TTL: Annotated[int, integer(10, "seconds")] = 15
# Seconds for which the domains of a dead node wait for its return, one lease at least. Then other
# nodes take them over, and fetch pages again that they discover again. Give all nodes the same.
KROWL_TAKEOVER_DELAY: Annotated[float, seconds(high=86_400)] = 900.0
# This node's Redis as the other nodes reach it; the setting of scrapy-redis.
REDIS_URL: Annotated[str, checks.redis_url] = ""
REDIS_URL_FILE: Annotated[str, checks.file_of_secret] = ""
# Seconds for which a node that is stopped hands its hosts over to the others. The rest stays in its
# job folder. 0: nothing is handed over.
KROWL_DRAIN_TIMEOUT: Annotated[float, seconds(high=86_400)] = 300.0
# Pages that all nodes together fetch, in all starts, until the crawl is over. 0: no limit.
KROWL_CLUSTER_PAGES: Annotated[int, integer(0, "pages")] = 0

# --- Archive --------------------------------------------------------------------------------------

# False: nothing is archived. Queue, politeness and robots.txt are as with an archive.
KROWL_ARCHIVE: bool = True
# Folder of the WARC files; None: JOBDIR/warc.
KROWL_WARC_DIR: Annotated[str | None, checks.folder] = None
# First part of their names: letters, digits, dot, underscore, hyphen.
KROWL_WARC_PREFIX: Annotated[str, checks.warc_prefix] = "krowl"
# Fields of the warcinfo record of each file, besides those that the crawler writes: operator (else
# KROWL_CONTACT), description, isPartOf, or names of your own. A mapping of names to text; on the
# command line JSON: {"operator": "Example Library", "isPartOf": "autumn"}.
KROWL_WARC_INFO: Annotated[dict[str, str], checks.warc_info] = {}
# Bytes of a file before the next is begun: the 1 GB of the WARC guidelines.
KROWL_WARC_MAX_SIZE: Annotated[int, size(1)] = 1_000_000_000
# Digests of blocks and payloads: sha1, which every tool knows, or sha256 (in
# hexadecimal).
KROWL_WARC_DIGEST: Annotated[str, checks.digest] = "sha1"
# isal-0 to isal-3, or zlib-ng-1 to zlib-ng-9. zlib-ng-6 makes files a fifth smaller and takes eight
# times as long.
KROWL_WARC_COMPRESSION: Annotated[str, checks.compression] = "isal-1"
# What is archived besides requests and responses. metadata: a record for each fetch with the page
# that led there, depth, hop, times, links, encoding; each queued URL keeps the URL of that page,
# which doubles the frontier on disk. failures: a metadata record for each fetch that failed, with
# the kind of failure. dns: a resource record (text/dns) for each answer of the DNS.
KROWL_WARC_ALSO: Annotated[list[str], checks.warc_also] = []
# True: a payload that is in the archive already is not stored again. A revisit record refers to it.
KROWL_WARC_REVISIT: bool = True
# Other crawls: a body that one of them has stored is not stored again. A list of JOBDIRs, CDXJ
# files, and indexes that `scrapy warc dedup-index` has built; of the first two an index is built at
# the start. It needs KROWL_WARC_REVISIT.
KROWL_WARC_DEDUP: Annotated[list[str], checks.other_crawls] = []
# Seconds from the capture of the other crawl to this one, beyond which the body is stored again.
# 0: no limit.
KROWL_WARC_DEDUP_MAX_AGE: Annotated[float, seconds()] = 0.0
# Bytes that must be free on the disks of the WARC files and of JOBDIR. With less the crawl pauses,
# until a tenth and at least 100 MB more are free. The floor leaves space for pages in flight (50 MB
# as a rule, 2.6 GB at worst), the archive's queue, LevelDB's merges (0.2 GB), the seen filter
# (0.3 GB at 63 million URLs) and other programs. If the disk still fills, the archive waits for
# space, and a frontier that cannot write ends the crawl with exit code 3. 0: no floor.
KROWL_DISK_FLOOR: Annotated[int, size(0)] = 2_000_000_000
# Where finished WARC files and their indexes are uploaded during the crawl: "s3://bucket/prefix".
# Credentials and region come from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
# AWS_REGION. They need the rights ListBucket, GetObject, PutObject and AbortMultipartUpload, and an
# uplink of 1 Mbit/s. None: no upload.
KROWL_WARC_UPLOAD: Annotated[str | None, checks.destination] = None
# URL of a store other than AWS: MinIO, R2 ...; None: AWS.
KROWL_WARC_UPLOAD_ENDPOINT: Annotated[str | None, checks.endpoint] = None
# True removes a WARC file from the disk once its object is verified. Its index stays.
KROWL_WARC_UPLOAD_DELETE: bool = False

# --- What runs on the way of every page -----------------------------------------------------------

# The names with _BASE are the project's. DOWNLOADER_MIDDLEWARES, SPIDER_MIDDLEWARES, EXTENSIONS and
# DOWNLOAD_HANDLERS are yours: they come on top, and None takes a component away. A start without a
# component that a guarantee needs is refused. robots.txt, politeness, the group commit and the disk
# guard are in none of these settings. Scrapy's middlewares have the positions that Scrapy gives
# them. The broad spider leaves out those that it does not need.
DOWNLOADER_MIDDLEWARES_BASE = {
    "scrapy.downloadermiddlewares.offsite.OffsiteMiddleware": 50,
    "scrapy.downloadermiddlewares.httpauth.HttpAuthMiddleware": 300,
    "krowlspider.middlewares.retry.RetryMiddleware": 550,
    "krowlspider.middlewares.redirect.RedirectMiddleware": 600,
    "scrapy.downloadermiddlewares.cookies.CookiesMiddleware": 700,
    "scrapy.downloadermiddlewares.httpproxy.HttpProxyMiddleware": 750,
    "scrapy.downloadermiddlewares.httpcache.HttpCacheMiddleware": 900,
}
# Scrapy's own, without the Referer, which would tell sites where the crawler has been, and without
# the length of URLs, which scope checks.
SPIDER_MIDDLEWARES_BASE = {
    "krowlspider.middlewares.joining.Joining": 10,
    "scrapy.spidermiddlewares.start.StartSpiderMiddleware": 25,
    "scrapy.spidermiddlewares.httperror.HttpErrorMiddleware": 50,
    "krowlspider.middlewares.seeds.SeedMiddleware": 890,
    "scrapy.spidermiddlewares.depth.DepthMiddleware": 900,
    "scrapy.spidermiddlewares.metacopy.MetaCopyDetectionMiddleware": 1000,
}
# Sent with every request that does not set them. Accept-Encoding names what the handler decodes.
DEFAULT_REQUEST_HEADERS = {
    "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Accept-Language": "en",
    "Accept-Encoding": "gzip, deflate, br, zstd",
}
# Scrapy's own, without LogStats (the status line replaces it), SpiderState (a pickle written only
# on a clean close), AutoThrottle, and RemoteControl, which runs Python that is posted to it.
EXTENSIONS_BASE = {
    "krowlspider.extensions.core_stats.CoreStats": 0,
    "scrapy.extensions.logcount.LogCount": 0,
    "krowlspider.extensions.telnet.TelnetConsole": 0,
    "krowlspider.extensions.live_page.LivePage": 0,
    "krowlspider.extensions.cluster_orders.ClusterOrders": 0,
    "krowlspider.extensions.rpc.Rpc": 0,
    "scrapy.extensions.memusage.MemoryUsage": 0,
    "scrapy.extensions.memdebug.MemoryDebugger": 0,
    "scrapy.extensions.closespider.CloseSpider": 0,
    "scrapy.extensions.feedexport.FeedExporter": 0,
    "krowlspider.extensions.status.Status": 0,
    "krowlspider.extensions.reports.Reports": 0,
    "krowlspider.extensions.notify.Notify": 0,
    "krowlspider.extensions.exclude.Exclude": 0,
    "krowlspider.extensions.upload.Upload": 0,
    "krowlspider.extensions.gc_tuning.GcTuning": 0,
    "krowlspider.extensions.loop_lag.LoopLag": 0,
    "krowlspider.extensions.watchdog.Watchdog": 0,
    "krowlspider.extensions.metrics.Metrics": 0,
    "krowlspider.extensions.profiles.Profiles": 0,
}
# In a CSV feed no cell is a formula.
FEED_EXPORTERS_BASE = {
    **default_settings.FEED_EXPORTERS_BASE,
    "csv": "krowlspider.engine.csv_export.CsvItemExporter",
}
# Off here, on by default in Scrapy 2.19: it runs Python code that is posted to it. To use the
# extension, set this to True and add it to EXTENSIONS.
REMOTE_CONTROL_ENABLED = False

# --- Metrics --------------------------------------------------------------------------------------

# True: the stats are served to Prometheus at
# http://PROMETHEUS_HOST:PROMETHEUS_PORT/PROMETHEUS_PATH, without a host or URL in them. The names
# of these settings are those of scrapy-prometheus-exporter.
PROMETHEUS_ENABLED: bool = True
# Address to listen at. Anyone who reaches it may read the metrics, /healthz and /readyz: give
# 0.0.0.0 only in a network of your own.
PROMETHEUS_HOST: Annotated[str, checks.listen_address] = "127.0.0.1"
# Further names of this address. Requests by others, and by addresses that are not its own, are
# refused with status 421: a name of a service, or an address that is translated, stands here.
KROWL_METRICS_NAMES: Annotated[list[str], checks.host_names] = []
# A port; 0: any free one. With two numbers, the first free port from one to the other, for several
# crawls on a machine.
PROMETHEUS_PORT: Annotated[list[int], checks.one_port_or_range] = [9410, 9420]
PROMETHEUS_PATH: Annotated[str, checks.url_path] = "metrics"
# Port of the page where PROMETHEUS_HOST is no loopback address; as PROMETHEUS_PORT.
KROWL_CONTROL_PORT: Annotated[list[int], checks.one_port_or_range] = [9430, 9450]
# Whoever has this token, of at least 16 characters, can change the crawl by the live page and its
# API. Give it in the environment, or in a file that KROWL_CONTROL_TOKEN_FILE names. Empty: each
# start makes one, in JOBDIR/control-token, which only its owner can read.
KROWL_CONTROL_TOKEN: Annotated[str, checks.control_token] = ""
KROWL_CONTROL_TOKEN_FILE: Annotated[str, checks.file_of_secret] = ""
# True: programs that use tools, such as assistants, watch and steer the crawl by the Model Context
# Protocol, at /mcp of the live page. Without the token they only watch.
KROWL_CONTROL_MCP: bool = False
# Folder of a search index that `scrapy index` makes: the live page searches it at /search. It needs
# the extra search. Empty: there is no search.
KROWL_SEARCH: Annotated[str, checks.search_index] = ""
# HOST:PORT at which programs watch and steer the crawl by gRPC, 127.0.0.1:50051; port 0: any free
# one. Each call needs the token. It needs the live page and the extra grpc. Empty: not served.
KROWL_GRPC: Annotated[str, checks.grpc_address] = ""
# Files in PEM: certificate and private key of that server, for TLS. Without them it listens at a
# loopback address alone.
KROWL_GRPC_CERT: Annotated[str, checks.file_or_none] = ""
KROWL_GRPC_KEY: Annotated[str, checks.file_or_none] = ""
# File in PEM of the authority that has signed the certificate of each client, which then needs one
# besides the token (mTLS).
KROWL_GRPC_CLIENT_CA: Annotated[str, checks.file_or_none] = ""

# --- Notices --------------------------------------------------------------------------------------

# The http(s) URL of a webhook, or a command, that gets a notice as JSON when the crawl finishes or
# stops, waits for its disk or the network, stalls, or loses a node. A command gets it on its
# standard input. A URL may have a secret: give it in the environment, or in a file that
# KROWL_NOTIFY_FILE names. Empty: no notices.
KROWL_NOTIFY: Annotated[str, checks.notice_target] = ""
KROWL_NOTIFY_FILE: Annotated[str, checks.file_of_secret] = ""

# --- Traces ---------------------------------------------------------------------------------------

# The URL of a collector of OpenTelemetry that takes OTLP over HTTP, such as http://127.0.0.1:4318:
# it gets the times of one request in a hundred and of all that failed. Empty: no traces.
KROWL_TRACES: Annotated[str, checks.collector] = ""

# --- Profiles -------------------------------------------------------------------------------------

# The URL of a Pyroscope server, http://127.0.0.1:4040: it gets CPU profiles of this process with
# node, job and spider, one every ten seconds. It needs the extra pyroscope. Empty: no profiles.
KROWL_PYROSCOPE: Annotated[str, checks.pyroscope] = ""

# --- Log ------------------------------------------------------------------------------------------

# No line for each page: a status line every KROWL_STATUS_INTERVAL seconds and a summary at the end.
LOG_LEVEL: Annotated[str, checks.log_level] = "INFO"
LOG_FORMATTER = "krowlspider.engine.logformatter.LogFormatter"
# json: each line of the log is a JSON object (docs/logs-and-metrics.md). text: lines as LOG_FORMAT
# says.
KROWL_LOG_FORMAT: Annotated[str, one_of("text", "json")] = "text"
# Seconds between two status lines of the log.
KROWL_STATUS_INTERVAL: Annotated[float, seconds(above=True)] = 10.0
# Bytes that JOBDIR/crawl.log and its older files may have: a line for each fetch, in the columns of
# Heritrix's crawl.log. At a tenth a new file is begun, and the oldest removed. 0: no such file.
KROWL_CRAWL_LOG: Annotated[int, size(0)] = 0
# True: on a terminal, one live line with pages, rate, queue and the time left stands below the log,
# in place of the status lines. Files and pipes get the status lines.
KROWL_PROGRESS: bool = True
# Scrapy's own, with cheaper access.
STATS_CLASS = "krowlspider.engine.stats.StatsCollector"
# The summary shows the important stats; STATS_DUMP=True logs all of them.
STATS_DUMP = False

# --- Scrapy's, with the defaults of Scrapy --------------------------------------------------------

# What the crawl relies on, or errors that Scrapy does not explain.
ADDONS: Annotated[dict[str, int], checks.add_ons]  # type: ignore[no-redef]
LOG_FILE: Annotated[str | None, checks.log_file]
FEEDS: Annotated[dict[str, Any], checks.feeds]
TELNETCONSOLE_PORT: Annotated[list[int] | None, checks.telnet_ports]
TWISTED_REACTOR_ENABLED: Annotated[bool, checks.switched_on]
DOWNLOAD_DELAY: Annotated[float, scrapy_politeness.delay]
DOWNLOAD_DELAY_JITTER: Annotated[float, number(0, "of the delay")]
RANDOMIZE_DOWNLOAD_DELAY: bool
DOWNLOADER_MIDDLEWARES: Annotated[dict[str, int], checks.components]
EXTENSIONS: Annotated[dict[str, int], checks.components]
ITEM_PIPELINES: Annotated[dict[str, int], checks.components]
SPIDER_MIDDLEWARES: Annotated[dict[str, int], checks.components]
DOWNLOAD_SLOTS: Annotated[dict[str, Any], scrapy_politeness.slots]
CONCURRENT_REQUESTS_PER_DOMAIN: Annotated[int, integer(1, "requests")]
CONCURRENT_REQUESTS_PER_IP: Annotated[int | None, scrapy_politeness.requests_per_ip]
AUTOTHROTTLE_ENABLED: bool
AUTOTHROTTLE_DEBUG: bool
AUTOTHROTTLE_TARGET_CONCURRENCY: Annotated[float, number(0, "requests", above=True)]
AUTOTHROTTLE_START_DELAY: Annotated[float, seconds()]
AUTOTHROTTLE_MAX_DELAY: Annotated[float, seconds()]
DEPTH_LIMIT: Annotated[int, integer(0, "links")]

# The types of settings are those of these values.
defaults = {name: value for name, value in vars().items() if name.isupper()}
