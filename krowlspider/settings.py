"""All configuration of krowlspider: each value with its unit and its reason.

Nothing else in the project sets a default. Override with ``-s NAME=VALUE``, with scrapyd's
``-d setting=NAME=VALUE``, or in a copy of this module. ``KROWL_*`` values are checked when a crawl starts
(``krowlspider.config.validation``); an unknown or impossible one stops the start.
"""

from importlib.metadata import PackageNotFoundError, version
from os import environ

from scrapy.settings import default_settings

from krowlspider import __version__

# --- Project -------------------------------------------------------------------------------------

BOT_NAME = "krowlspider"
SPIDER_MODULES = ["krowlspider.spiders"]
NEWSPIDER_MODULE = "krowlspider.spiders"
COMMANDS_MODULE = "krowlspider.commands"
# Checks the settings before anything else is built.
ADDONS = {"krowlspider.config.validation.ValidationAddon": 0}

# Who runs this crawl: an e-mail address or a URL that a site owner can reach. Required: it goes into the
# User-Agent and into every WARC file. There is no default, so that nobody crawls without a name.
KROWL_CONTACT = None
# The User-Agent; {contact} is replaced by KROWL_CONTACT.
USER_AGENT = f"krowlspider/{__version__} (+{{contact}})"
# The product token looked for in robots.txt (RFC 9309, section 2.2.1).
ROBOTSTXT_USER_AGENT = "krowlspider"
# False ignores robots.txt: for an archive of your own site only.
ROBOTSTXT_OBEY = True

# --- The three seams with Scrapy's engine ---------------------------------------------------------

SCHEDULER = "krowlspider.engine.scheduler.Scheduler"
DUPEFILTER_CLASS = "krowlspider.engine.dupefilter.DupeFilter"
DOWNLOADER = "krowlspider.engine.downloader.Downloader"
# No other scheme: a link must not read local files or other protocols' servers.
DOWNLOAD_HANDLERS_BASE = {
    "http": "krowlspider.engine.handler.DownloadHandler",
    "https": "krowlspider.engine.handler.DownloadHandler",
}
TWISTED_REACTOR = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
# uvloop is the faster event loop; it has no build for Windows or PyPy, where asyncio's own loop serves.
try:
    version("uvloop")
except PackageNotFoundError:
    ASYNCIO_EVENT_LOOP = None
else:
    ASYNCIO_EVENT_LOOP = "uvloop.Loop"

# --- Concurrency and limits of one fetch ----------------------------------------------------------

# Requests in flight, all hosts together.
CONCURRENT_REQUESTS = 256
# Items of one response handled at once. Scrapy starts that many tasks per response: 100 halves the pages per second.
CONCURRENT_ITEMS = 1
# Bytes of responses in callbacks before the engine stops popping. Pages that become items wait here for their WARC offset, so this
# is the same 64 MB as the archive's queue.
SCRAPER_SLOT_MAX_ACTIVE_SIZE = 64 * 1024 * 1024
# Seconds for a whole fetch, name look-up to last byte.
DOWNLOAD_TIMEOUT = 60
# Seconds to connect to an address of a host, TLS included; up to three addresses are tried.
KROWL_CONNECT_TIMEOUT = 10.0
# Seconds from the request's last byte to the answer's first.
KROWL_FIRST_BYTE_TIMEOUT = 30.0
# Bytes a second at which an answer is to come once it has begun, over any 10 s; a slower one is cut
# off after 10 to 20 s, counted as an error of its host, and tried again. A modem of 9600 baud has
# 1000. Lost are servers that send a head at once and take over 10 s for the page. 0: at any rate,
# until DOWNLOAD_TIMEOUT.
KROWL_BODY_RATE_MIN = 500
# Bytes of a body, as received and again after decoding. A page with more is dropped; what had come of it is in the
# WARC file, marked as cut where it was cut.
DOWNLOAD_MAXSIZE = 10 * 1024 * 1024
# Bytes of bodies in memory, all together: received, decoded, in callbacks, waiting for the archive.
# With as many, nothing more is fetched and large bodies wait, which is told as
# krowl/memory/waits_count; memory besides is 0.2 GB and what the frontier takes. 0: a quarter of
# what the machine, or the control group (container) of the process, has.
KROWL_MEMORY_LIMIT = 0
# 0: no warning for large bodies, they are ordinary in a broad crawl.
DOWNLOAD_WARNSIZE = 0
# Seconds an unused connection is kept: longer than most delays, shorter than most servers' own limit.
KROWL_KEEPALIVE = 15.0
# Requests to a host in a row, each after its delay, before those that have waited longer have their turn: so nine of ten go over
# a connection that is open. Only where the delay is shorter than KROWL_KEEPALIVE. 1: each host in its turn.
KROWL_SESSION_REQUESTS = 10

# --- Which addresses may be fetched ---------------------------------------------------------------

# CIDR list of addresses that may be fetched although they are not public: intranets, tests. Every other loopback,
# private, link-local (cloud metadata) or reserved address is refused when connecting.
KROWL_ALLOW_ADDRESSES: list[str] = []
# Ports that links, redirects and sitemaps may lead to, besides 80 of http and 443 of https: one by
# itself ("8080") on each host; of a range ("1024-65535") one for each host name, the first that is
# found, and 8 for each address. Seeds and the requests of your own spiders may have any port but
# those that browsers refuse too: 22, 25, 6667 ... are never asked.
KROWL_PORTS = ["80", "443", "8080", "8443", "1024-65535"]
# Fixed names: {"name": "address"} or {"*.suffix": "address"}, before any resolver.
KROWL_RESOLVE: dict[str, str] = {}
# DNS servers ("1.2.3.4" or "1.2.3.4:53"); empty: those of /etc/resolv.conf.
KROWL_DNS_SERVERS: list[str] = []
# Seconds for one name look-up, all tries together.
KROWL_DNS_TIMEOUT = 5.0
# Names remembered; about 300 bytes each.
DNSCACHE_SIZE = 100_000

# --- Politeness -----------------------------------------------------------------------------------

# Delay between two requests to a host: this times the moving average of its latency ...
KROWL_DELAY_FACTOR = 5.0
# ... but at least this (seconds) ...
KROWL_DELAY_MIN = 0.25
# ... and at most this (seconds); robots.txt's crawl-delay and backing off may ask for more.
KROWL_DELAY_MAX = 30.0
# Seconds; a host whose robots.txt asks for more is retired: its URLs are dropped with the reason "crawl_delay".
KROWL_CRAWL_DELAY_MAX = 300.0
# Seconds; a larger Retry-After counts as this.
KROWL_RETRY_AFTER_MAX = 3600.0
# Requests in flight to one registrable domain, all its hosts together.
KROWL_DOMAIN_CONCURRENCY = 2
# Requests in flight to one IP address, or to the /64 of an IPv6 one, all hosts there together: one
# machine may serve thousands. With it a block of addresses, an IPv4 /24 or IPv6 /48, has a quarter
# of CONCURRENT_REQUESTS. 0: no limit for either.
KROWL_IP_CONCURRENCY = 8
# Seconds from one request to an IP address, or to a /64, to the next, all hosts there together,
# robots.txt counted: 10 a second, which a machine that serves many sites bears. When three hosts
# there in a row answer 429 or 503 it backs off as a host does, by up to 60 s of their Retry-After.
# 0: neither.
KROWL_IP_DELAY_MIN = 0.1
# Seconds a robots.txt is used before it is fetched again (RFC 9309, section 2.4: at most 24 hours).
KROWL_ROBOTS_TTL = 86_400.0
# Times a page is asked again after a transport error or a RETRY_HTTP_CODES status.
RETRY_TIMES = 2
# Seconds from a failed try of a page to its next, doubled with each try, an hour at most. The host's other pages go
# on meanwhile.
KROWL_RETRY_DELAY = 30.0
# Answers that may be different next time. 429 and 503 are the host asking for rest: see KROWL_THROTTLING_TIMES.
RETRY_HTTP_CODES = [500, 502, 504, 522, 524, 408]
# Errors after which a page is asked again: Scrapy's own less those of its download handlers, which are not used.
RETRY_EXCEPTIONS = [
    "scrapy.exceptions.CannotResolveHostError",
    "scrapy.exceptions.DownloadConnectionRefusedError",
    "scrapy.exceptions.DownloadFailedError",
    "scrapy.exceptions.DownloadTimeoutError",
    "scrapy.exceptions.ResponseDataLossError",
]
# Times a page is asked again after 429 or 503, each time later.
KROWL_THROTTLING_TIMES = 10
# Redirects followed in one chain.
REDIRECT_MAX_TIMES = 10

# --- Sitemaps -------------------------------------------------------------------------------------

# Whether the broad spider reads the sitemaps of each host: those that its robots.txt names, and /sitemap.xml. They
# are found with robots.txt, so ROBOTSTXT_OBEY = False turns them off as well. Each is a page like any other in all
# limits, max_pages included, but may have 50 MB.
KROWL_SITEMAPS = True

# --- Frontier -------------------------------------------------------------------------------------

# Folder of the crawl: frontier, seen set, WARC files. None: a temporary folder, named in the log.
JOBDIR = None
# Seconds between two group commits: WARC files to disk, then the pages in them are done.
KROWL_COMMIT_INTERVAL = 1.0
# URLs queued for one host, so that no single site fills the frontier. Pages of other domains may
# fill half of it, and what they name comes after what the host's own pages do.
KROWL_HOST_QUEUE_MAX = 1000
# URLs queued for one registrable domain in the whole crawl, all its hosts together; what is dropped does not count.
# 0: no limit. With one, each page costs a look-up and a put for each domain that its new links lead to.
KROWL_DOMAIN_BUDGET = 0
# Part of KROWL_FRONTIER_MAX that one registrable domain may have queued once half of all places are
# taken, so that no site fills it; further URLs are dropped with the reason "domain_share". 0: no
# limit.
KROWL_DOMAIN_SHARE = 0.1
# URLs queued in all; 90 bytes of disk each where hosts have 20, 120 where they have 4, the seen key included.
KROWL_FRONTIER_MAX = 50_000_000
# URLs the first layer of the seen filter holds at 1e-6 false positives (30 bits each); each further layer holds four
# times as many as the last, up to 16 million.
KROWL_SEEN_CAPACITY = 1_000_000
# True: each positive of the filter is looked up on disk, which makes the seen set exact for 4 to 10 µs a known link.
KROWL_SEEN_VERIFY = False
# Characters of the longest URL that is queued, 16,384 at most; 0: so many.
URLLENGTH_LIMIT = 2048

# --- Scope and traps -------------------------------------------------------------------------------

# File of regular expressions, one a line, "#" comments: a URL in which one is found is not fetched, a seed neither, nor
# one that is queued already. Read again while the crawl runs when it changes. One that goes back and forth without end,
# such as (a+)+$, stops the crawl at a URL that has it do so. None: nothing is excluded.
KROWL_EXCLUDE = None
# Segments of a path (/a/b/c has 3); links with more are left. Relative links that are wrong grow without end. 0: no
# limit.
KROWL_PATH_DEPTH_MAX = 20
# Times that one segment may be in a path, which holds for a run of segments too; links with more are left. 0: no limit.
KROWL_REPEATED_SEGMENTS_MAX = 3
# Last part of a path that says that no text is there: links to it are left; sitemaps may be gz all the same. Not pdf,
# which is text. An empty list leaves none.
KROWL_SKIP_EXTENSIONS = [
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
# Pages of a host with the same body, to the byte, that yield links; further ones yield none: they are error pages that
# say 200, or a maze. 0: no limit.
KROWL_DUPLICATE_BODIES_MAX = 10
# True follows links with rel=nofollow, and those of pages whose meta robots or X-Robots-Tag says nofollow.
KROWL_FOLLOW_NOFOLLOW = False

# --- Cluster --------------------------------------------------------------------------------------

# Name of the cluster; its nodes, and nobody else, have the same.
KROWL_CLUSTER = "krowlspider"
# Id of this node: 1 to 63 letters, digits, '.', '_' and '-'. It owns a share of the domains by it: a node that comes
# back needs the one it had. Empty: the name of the machine.
KROWL_NODE_ID = ""
# Consul's agent, http://127.0.0.1:8500: the members come and go, as it knows them. A certificate authority of your own:
# CONSUL_CACERT in the environment. Empty: no such cluster.
KROWL_CONSUL = ""
# What is secret may stand in the environment, or in a file that NAME_FILE names: a command line is
# shown to all who are on the machine, by ps and by scrapyd. NAME and NAME_FILE at once stop the
# start. ACL token with the rights to write keys below krowlspider/, sessions, and the service
# krowlspider-KROWL_CLUSTER.
KROWL_CONSUL_TOKEN = environ.get("KROWL_CONSUL_TOKEN", "")
KROWL_CONSUL_TOKEN_FILE = environ.get("KROWL_CONSUL_TOKEN_FILE", "")
# Seconds of a lease, at least Consul's 10. A node that cannot renew it stops after four fifths of them; others take its
# domains over three times as long after its last renewal. With less, a busy machine looks dead.
KROWL_CONSUL_TTL = 15
# This node's Redis with Consul, as the others reach it; scrapy-redis's own setting.
REDIS_URL = environ.get("REDIS_URL", "")
REDIS_URL_FILE = environ.get("REDIS_URL_FILE", "")
# Share of the domains that this node takes with Consul, beside the others' weights.
KROWL_NODE_WEIGHT = 1
# Seconds that a node with Consul which is stopped hands over to the others what it has; what is left then waits in its
# job folder. 0: all of it does.
KROWL_DRAIN_TIMEOUT = 300.0
# The members without Consul, the same at every node: a list of "id=redis-url", or "id=redis-url*weight".
KROWL_STATIC_NODES = environ.get("KROWL_STATIC_NODES", "")
KROWL_STATIC_NODES_FILE = environ.get("KROWL_STATIC_NODES_FILE", "")
# At least 16 characters, the same at every node of KROWL_STATIC_NODES and known to nobody else: the seed of
# the identities is made of it. Who knows the seed can make URLs that are taken for others, which
# are not fetched then. "none": a new node of a ring that was begun without.
KROWL_STATIC_NODES_SECRET = environ.get("KROWL_STATIC_NODES_SECRET", "")
KROWL_STATIC_NODES_SECRET_FILE = environ.get("KROWL_STATIC_NODES_SECRET_FILE", "")
# Pages that all nodes together fetch, all starts counted, until the crawl is over. 0: no limit.
KROWL_CLUSTER_PAGES = 0
# Messages in a node's inbox in its Redis before the others keep theirs in their outboxes.
KROWL_INBOX_MAX = 1_000_000
# URLs of other nodes that wait on this one's disk while their owners do not take them; what comes then is dropped, and
# not marked seen. 0: no limit.
KROWL_OUTBOX_MAX = 10_000_000

# --- Archive --------------------------------------------------------------------------------------

# Folder of the WARC files; None: JOBDIR/warc.
KROWL_WARC_DIR = None
# First part of their names: letters, digits, dot, underscore, hyphen.
KROWL_WARC_PREFIX = "krowl"
# Bytes of one file before the next is begun: the 1 GB of the WARC guidelines.
KROWL_WARC_MAX_SIZE = 1_000_000_000
# Seconds after which one is ended all the same.
KROWL_WARC_MAX_AGE = 3600.0
# Digests of blocks and payloads: sha1, which every tool knows, or sha256.
KROWL_WARC_DIGEST = "sha1"
# isal-0 to isal-3, or zlib-ng-1 to zlib-ng-9: level 6 makes files a fifth smaller for eight times the time.
KROWL_WARC_COMPRESSION = "isal-1"
# Pages that are answered so are not archived: the host asked for rest, and the page is fetched again. An empty list
# archives all, as robots.txt always is.
KROWL_WARC_SKIP_STATUS = [429, 503]
# True: a metadata record for each fetch: the page that led there, depth, hop, times, links, encoding. The URL of that
# page is kept with each queued URL then, which doubles the frontier on disk.
KROWL_WARC_METADATA = False
# True: a metadata record for each fetch that failed, with the kind of failure.
KROWL_WARC_FAILURES = False
# True: a resource record (text/dns) for each answer of the DNS.
KROWL_WARC_DNS = False
# Bytes waiting for the writer before the engine stops popping.
KROWL_WARC_QUEUE = 64 * 1024 * 1024
# True: a payload that is in the archive already is not stored again; a revisit record names the one that holds it.
KROWL_WARC_REVISIT = True
# Payloads remembered for that, at 90 bytes of disk each: 0.9 GB, and 20 MB of memory, when full. At least half of them
# are those that came last.
KROWL_WARC_REVISIT_MAX = 10_000_000
# Bytes that must be free on the disks of the WARC files and of JOBDIR; with less the crawl pauses until there are a
# tenth and at least 100 MB more. Room for what is in flight (256 pages: 50 MB as a rule, 2.6 GB at the worst), the
# archive's queue (64 MB), LevelDB's logs and merges (0.2 GB) and the draft of the seen filter (0.3 GB at 63 million
# URLs), with as much again for others. A disk that fills all the same pauses the crawl too. 0: no floor.
KROWL_DISK_FLOOR = 2_000_000_000
# Where finished WARC files and their indexes are uploaded to while the crawl runs: "s3://bucket/prefix". Credentials
# and region are not set here but in the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION. They need
# the rights ListBucket, GetObject, PutObject and AbortMultipartUpload, and an uplink of 1 Mbit/s. None: nothing is
# uploaded.
KROWL_WARC_UPLOAD = None
# URL of a store that is not AWS's: MinIO, R2 ...; None: AWS.
KROWL_WARC_UPLOAD_ENDPOINT = None
# True removes a WARC file from the disk when its object is verified. Its index stays.
KROWL_WARC_UPLOAD_DELETE = False

# --- What runs on the way of every page -----------------------------------------------------------

# The names with _BASE hold what the project has there. DOWNLOADER_MIDDLEWARES, SPIDER_MIDDLEWARES,
# EXTENSIONS and DOWNLOAD_HANDLERS are yours: what you set there comes on top, and a name with None
# takes that component away. The start refuses to go without those on which a guarantee rests
# (krowlspider.config.guarantees). robots.txt, politeness, the group commit and the disk guard are in none
# of them: they belong to the downloader and to the job.
# Of Scrapy's own only allowed_domains: robots.txt is decided at the pop, decoding and headers in the
# download handler.
DOWNLOADER_MIDDLEWARES_BASE = {
    "scrapy.downloadermiddlewares.offsite.OffsiteMiddleware": 50,
    "middlewares.retry.RetryMiddleware": 550,
    "middlewares.redirect.RedirectMiddleware": 600,
}
# Scrapy's own less the Referer, which would tell sites where the crawler has been, and the length
# of URLs, which scope refuses where they are discovered.
SPIDER_MIDDLEWARES_BASE = {
    "middlewares.joining.Joining": 10,
    "scrapy.spidermiddlewares.start.StartSpiderMiddleware": 25,
    "scrapy.spidermiddlewares.httperror.HttpErrorMiddleware": 50,
    "scrapy.spidermiddlewares.depth.DepthMiddleware": 900,
    "scrapy.spidermiddlewares.metacopy.MetaCopyDetectionMiddleware": 1000,
}
# Sent with every request that does not set them itself. Accept-Encoding names what the handler decodes.
DEFAULT_REQUEST_HEADERS = {
    "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Accept-Language": "en",
    "Accept-Encoding": "gzip, deflate, br, zstd",
}
# Scrapy's own, less LogStats (the status line takes its place), SpiderState (a pickle written only on a clean close; the
# frontier keeps what must last), AutoThrottle, and RemoteControl, which would run Python that is posted to it: set to
# None in EXTENSIONS they would be imported all the same, a fifth of a start.
EXTENSIONS_BASE = {
    "extensions.core_stats.CoreStats": 0,
    "scrapy.extensions.logcount.LogCount": 0,
    "extensions.telnet.TelnetConsole": 0,
    "scrapy.extensions.memusage.MemoryUsage": 0,
    "scrapy.extensions.memdebug.MemoryDebugger": 0,
    "scrapy.extensions.closespider.CloseSpider": 0,
    "scrapy.extensions.feedexport.FeedExporter": 0,
    "extensions.status.Status": 0,
    "extensions.exclude.Exclude": 0,
    "extensions.upload.Upload": 0,
    "extensions.gc_tuning.GcTuning": 0,
    "extensions.loop_lag.LoopLag": 0,
    "extensions.watchdog.Watchdog": 0,
    "extensions.metrics.Metrics": 0,
}
# Cells of a CSV feed are no formulas.
FEED_EXPORTERS_BASE = {
    **default_settings.FEED_EXPORTERS_BASE,
    "csv": "krowlspider.engine.csv_export.CsvItemExporter",
}
# On by default in Scrapy 2.19; whoever adds the extension again has to say so here too.
REMOTE_CONTROL_ENABLED = False

# --- Metrics --------------------------------------------------------------------------------------

# True: the figures of the crawl are at http://PROMETHEUS_HOST:PROMETHEUS_PORT/PROMETHEUS_PATH for Prometheus, without a
# host or a URL in them. The names of these settings are those of scrapy-prometheus-exporter.
PROMETHEUS_ENABLED = True
# Address to listen at. Whoever reaches it may read: 0.0.0.0 is for a network of your own.
PROMETHEUS_HOST = "127.0.0.1"
# A port; 0: any that is free. Of two, the first that is free from the one to the other, for several crawls on a machine.
PROMETHEUS_PORT = [9410, 9420]
PROMETHEUS_PATH = "metrics"

# --- Log ------------------------------------------------------------------------------------------

# No line per page: a status line every KROWL_STATUS_INTERVAL seconds and a summary at the end.
LOG_LEVEL = "INFO"
LOG_FORMATTER = "krowlspider.engine.logformatter.LogFormatter"
KROWL_STATUS_INTERVAL = 10.0
# Scrapy's own, quicker.
STATS_CLASS = "krowlspider.engine.stats.StatsCollector"
# The summary shows what a person wants to know; the raw numbers are in /stats and with STATS_DUMP=True.
STATS_DUMP = False
