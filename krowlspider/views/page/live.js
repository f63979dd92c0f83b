// The live page: asks /api/v1/ and shows what it answers. Texts of strangers are only ever set as
// text, never as HTML.
"use strict";

const at = (id) => document.getElementById(id);
const number = (value) => value.toLocaleString("en-US");
// Two digits of what is below 1: the first pages of a crawl are some KB.
const rate = (value) => value.toLocaleString("en-US",
  value < 1 ? { maximumSignificantDigits: 2 } : { maximumFractionDigits: 1 });

function bytes(size) {
  if (size < 1000) return `${size} B`;
  if (size < 999950) return `${rate(size / 1000)} KB`;
  return size < 999950000 ? `${rate(size / 1e6)} MB` : `${rate(size / 1e9)} GB`;
}

function duration(seconds) {
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${number(Math.floor(whole / 3600))} h ${Math.floor((whole % 3600) / 60)} min`;
}

const clock = (time) => new Date(1000 * time).toLocaleTimeString("en-GB");

function element(name, text, classes) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (classes) made.className = classes;
  return made;
}

// A text of strangers, which may be long: its first lines, and all of it on hovering.
function clipped(name, text) {
  const made = element(name, text, "clip");
  made.title = text;
  return made;
}

async function ask(name, parameters) {
  const query = parameters ? `?${new URLSearchParams(parameters)}` : "";
  const answer = await fetch(`/api/v1/${name}${query}`);
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error);
  return found;
}

// --- orders ---

// The token stays in the memory of this tab.
const TOKEN = "token";

function askToken(isWrong) {
  const asking = at("asking");
  at("token").value = "";
  at("wrong").hidden = !isWrong;
  asking.showModal();
  return new Promise((resolve) => {
    asking.addEventListener("close", () => resolve(asking.returnValue), { once: true });
  });
}

at("unlock").addEventListener("submit", (event) => {
  event.preventDefault();
  at("asking").close(at("token").value.trim());
});
at("cancel").addEventListener("click", () => at("asking").close(""));
at("asking").addEventListener("cancel", () => { at("asking").returnValue = ""; });

function say(where, text, isBad) {
  at(where).textContent = text;
  at(where).classList.toggle("bad", isBad);
}

// Send a body with the token, and return the answer; undefined without one.
async function send(name, kind, body, where) {
  let isWrong = false;
  for (;;) {
    const token = sessionStorage.getItem(TOKEN) || await askToken(isWrong);
    if (!token) {
      say(where, "Nothing was changed: no token was given.", true);
      return undefined;
    }
    try {
      const answer = await fetch(`/api/v1/${name}`, {
        method: "POST",
        headers: { "Authorization": `Bearer ${encodeURI(token)}`, "Content-Type": kind },
        body,
      });
      const found = await answer.json();
      isWrong = answer.status === 401;
      if (isWrong) {
        // It is asked for again, and nothing that was typed is lost.
        sessionStorage.removeItem(TOKEN);
        continue;
      }
      sessionStorage.setItem(TOKEN, token);
      say(where, answer.ok ? found.message : found.error, !answer.ok);
      return answer.ok ? found : undefined;
    } catch (error) {
      say(where, error.message, true);
      return undefined;
    }
  }
}

function order(name, body, where = "said") {
  return send(name, "application/json", JSON.stringify(body), where);
}

at("pause").addEventListener("click", async () => {
  await order(at("pause").value, {});
  showStatus(await ask("status"));
});
at("add").addEventListener("submit", (event) => {
  event.preventDefault();
  order("add", { url: at("added").value.trim(), priority: Number(at("priority").value) });
});
at("importing").addEventListener("submit", async (event) => {
  event.preventDefault();
  const [file] = at("file").files;
  const text = at("many").value;
  at("bad-lines").hidden = true;
  if (!file && !text.trim()) {
    say("said", "Give lines, or choose a file.", true);
    return;
  }
  say("said", "The crawl takes them …", false);
  const found = await send("import", "application/octet-stream", file || text, "said");
  if (!found) return;
  at("many").value = at("file").value = "";
  const shown = found.bad_lines.slice(0, 20);
  const lines = shown.map(({ line, reason }) => element("li", `line ${line}: ${reason}`));
  if (found.bad > shown.length) lines.push(element("li", `${number(found.bad - shown.length)} more`));
  at("bad-lines").replaceChildren(...lines);
  at("bad-lines").hidden = !lines.length;
});
at("blocking").addEventListener("submit", (event) => {
  event.preventDefault();
  order(event.submitter.value, { name: at("blocked").value.trim() });
});
at("reloading").addEventListener("submit", (event) => {
  event.preventDefault();
  order("reload", {});
});
at("steering").addEventListener("submit", async (event) => {
  event.preventDefault();
  const [name, host] = [event.submitter.value, at("steering").dataset.host];
  const seconds = at("seconds").value;
  const bodies = {
    pause: { host }, resume: { host },
    // As a URL it is this host, and not its domain.
    block: { name: `http://${host}/` }, unblock: { name: `http://${host}/` },
    delay: { host, seconds: seconds === "" ? null : Number(seconds) },
    forget: { name: host },
  };
  if (name === "forget" && event.submitter.dataset.host !== host) {
    event.submitter.dataset.host = host;
    say("said-of-host", `This drops all of ${host}: its queue, and which of its URLs are known.`
      + " Press Forget again to do it.", true);
    return;
  }
  delete at("forget").dataset.host;
  await order(name, bodies[name], "said-of-host");
  await showHost(host);
});

// --- figures and charts ---

let perSecond = null;
let folder = "JOBDIR";
let report = "JOBDIR/reports/report.html";

function showStatus(found) {
  const limit = found.of ? ` of ${number(found.of)}` : "";
  at("about").textContent = `${found.spider}, running for ${duration(found.seconds)}, in ${found.folder}`;
  const faulty = found.policies.includes("not in force: ") ? found.policies : "";
  at("reloading").hidden = !found.policies;
  at("sheets").textContent = found.policies;
  at("state").textContent = [found.paused, faulty].filter((text) => text).join("; ");
  folder = found.folder;
  report = found.report || `${folder}/reports/report.html`;
  at("place").textContent = `${folder}/control-token`;
  const isPaused = found.paused.startsWith("paused by a person");
  at("pause").value = isPaused ? "resume" : "pause";
  at("pause").textContent = isPaused ? "Resume the crawl" : "Pause the crawl";
  const dropped = Object.values(found.dropped).reduce((sum, count) => sum + count, 0);
  const tiles = [
    ["pages done", number(found.done), limit],
    ["pages/s", perSecond === null ? "–" : rate(perSecond), ""],
    ["URLs queued", number(found.queued), ""],
    ["hosts", number(found.hosts), ` ${number(found.due)} due`],
    ["in flight", number(found.in_flight), ""],
    ["deferred", number(found.deferred), ""],
    ["dropped", number(dropped), ""],
    ["archive", ...bytes(Math.round(1e6 * found.archive_mb)).split(/(?= )/)],
  ];
  at("tiles").replaceChildren(...tiles.map(([name, value, more]) => {
    const tile = element("div");
    const shown = element("dd", value);
    if (more) shown.append(element("small", more));
    tile.append(element("dt", name), shown);
    return tile;
  }));
  showCounts("statuses", found.statuses);
  showCounts("dropped", found.dropped);
  showCounts("failed", found.failed);
  document.title = `${number(found.done)} pages - krowlspider`;
}

function showCounts(id, counts) {
  const rows = Object.entries(counts).filter(([, count]) => count).sort((a, b) => b[1] - a[1]);
  if (!rows.length) rows.push(["none", null]);
  at(id).replaceChildren(...rows.map(([name, count]) => {
    const row = element("tr");
    const cell = element("td", undefined, count === null ? "none" : "");
    cell.append(clipped("span", name));
    row.append(cell);
    row.append(element("td", count === null ? "" : number(count)));
    return row;
  }));
}

const CHARTS = [
  ["pages_per_second", "pages/s"], ["in_flight", "requests in flight"],
  ["queued", "URLs queued"], ["failed_per_second", "failed fetches/s"],
  ["archive_mb", "archive, MB"], ["lag_ms", "loop lag, ms"],
];
const SVG = "http://www.w3.org/2000/svg";
const HOUR = 3600;

function path(classes, shape) {
  const made = document.createElementNS(SVG, "path");
  made.setAttribute("class", classes);
  made.setAttribute("d", shape);
  return made;
}

function chart(title, times, values) {
  const greatest = Math.max(...values);
  const most = Math.max(greatest, 1e-9);
  const last = values[values.length - 1];
  const figure = element("figure");
  const caption = element("figcaption");
  caption.append(element("span", title), element("b", rate(last)));
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 360 84");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${title}: ${rate(last)} now, at most ${rate(greatest)}`);
  // The time axis fits what there is.
  const end = times[times.length - 1];
  const span = Math.max(1, end - times[0]);
  const points = times.map((time, index) => {
    const x = 360 * (1 - (end - time) / span);
    return `${x.toFixed(1)},${(80 - 74 * values[index] / most).toFixed(1)}`;
  });
  const first = points[0].split(",")[0];
  svg.append(path("area", `M${first},84L${points.join("L")}L360,84Z`));
  svg.append(path("line", `M${points.join("L")}`));
  const axis = element("p", undefined, "axis");
  axis.append(element("span", clock(end - span).slice(0, 5)), element("span", `at most ${rate(greatest)}`));
  figure.append(caption, svg, axis);
  return figure;
}

function showHistory(found) {
  const newest = found.samples.length && found.samples[found.samples.length - 1][0];
  const rows = found.samples.filter((row) => row[0] > newest - HOUR);
  if (!rows.length) {
    at("charts").replaceChildren(element("p", "The first samples come after some seconds.", "none"));
    return null;
  }
  // One sample is drawn as a line too.
  if (rows.length === 1) rows.unshift([rows[0][0] - 1, ...rows[0].slice(1)]);
  const column = (name) => rows.map((row) => row[found.fields.indexOf(name)]);
  const times = column("time");
  at("charts").replaceChildren(...CHARTS.map(([name, title]) => chart(title, times, column(name))));
  return rows[rows.length - 1][found.fields.indexOf("pages_per_second")];
}

// --- hosts ---

let hosts = [];

function askHosts() {
  return ask("hosts", { sort: at("sort").value, state: at("only").value, limit: "100" });
}

function showHosts() {
  const wanted = at("find").value.trim().toLowerCase();
  const rows = hosts.filter((host) => host.host.includes(wanted));
  if (!rows.length) {
    const row = element("tr");
    row.append(element("td", wanted ? "no host of the list has this in its name" : "none", "none"));
    at("hosts").replaceChildren(row);
    return;
  }
  at("hosts").replaceChildren(...rows.map((host) => {
    const row = element("tr");
    const button = clipped("button", host.host);
    button.addEventListener("click", () => {
      say("said-of-host", "", false);
      showHost(host.host);
    });
    const name = element("td");
    name.append(button);
    row.append(name);
    const putOff = host.due_in === null ? "put off" : "now";
    const due = host.deferred ? "deferred" : host.due_in ? duration(host.due_in) : putOff;
    const cells = [number(host.queued), number(host.done), number(host.dropped),
      duration(host.delay), due, number(host.errors)];
    row.append(...cells.map((text) => element("td", text)));
    return row;
  }));
}

function answer(id, lines, facts) {
  const made = element("div", undefined, "answer");
  made.append(...lines.map((line) => element("p", line)));
  made.append(...facts.map((line) => element("p", line, "facts")));
  at(id).replaceChildren(made);
}

async function showHost(name) {
  try {
    const found = await ask("host", { name });
    const robots = found.robots.flatMap((each) => [
      `${each.authority}/robots.txt: ${each.ruling}, status ${each.status}`, ...each.terms]).concat(found.terms);
    if (found.priced) {
      robots.push(`price: ${found.price || "not named"}, ${found.priced} answers 402`);
    }
    const queue = found.queue.map((entry) => `queued: ${entry.url}`);
    answer("host", [`${name}: ${found.why}`], [
      `state ${found.state}, delay ${duration(found.host.delay)}, ${number(found.host.queued)}`
        + ` queued, ${number(found.host.done)} done, ${number(found.host.dropped)} dropped`,
      ...robots, ...found.sheets.map((line) => `policy: ${line}`), ...queue]);
    at("steering").dataset.host = name;
    at("steering").hidden = at("last").hidden = false;
    await showAnswers();
  } catch (error) {
    answer("host", [error.message], []);
    at("steering").hidden = at("last").hidden = true;
  }
}

function pathOf(url) {
  return url.slice(url.indexOf("/", 8));
}

async function showAnswers() {
  if (at("last").hidden) return;
  const found = await ask("answers", { name: at("steering").dataset.host });
  const last = found.slice(0, 10).map((each) => ({ ...each, url: pathOf(each.url) }));
  showLines("answers", last, (each) => clock(each.time));
  const known = found.filter((each) => each.delay !== null).reverse();
  const column = (name) => known.map((each) => each[name]);
  const shown = known.length > 1 ? chart("delay, s", column("time"), column("delay"))
    : element("p", "Its delay is drawn from its next answers on.", "none");
  at("delays").replaceChildren(shown);
}

// --- one URL ---

at("explain").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    const found = await ask("explain", { url: at("url").value });
    const facts = [
      `state: ${found.state}`, found.setting && `decided by ${found.setting}`,
      found.robots && `robots.txt ${found.robots}`,
      found.captures && `${number(found.captures)} ${found.captures === 1 ? "capture" : "captures"}`
        + " in the archive",
    ];
    answer("explained", [found.why], [found.url, ...facts.filter(Boolean)]);
  } catch (error) {
    answer("explained", [error.message], []);
  }
});

// --- pages ---

function showLines(id, rows, when) {
  if (!rows.length) {
    at(id).replaceChildren(element("li", "none yet", "none"));
    return;
  }
  at(id).replaceChildren(...rows.map((page) => {
    const line = element("li");
    const url = element("span", page.url);
    url.title = page.url;
    line.append(url);
    const isDone = page.outcome === "done";
    const last = page.status && `${page.status}, ${bytes(page.size)}, ${page.latency.toFixed(2)} s`;
    const parts = [isDone ? "" : page.outcome, last, when(page)];
    line.append(element("span", parts.filter(Boolean).join(", "), isDone ? "none" : "bad"));
    return line;
  }));
}

function showPages(found) {
  showLines("pages", found.slice(0, 30), () => "");
}

// --- how fresh the pages stay ---

const FORECAST_EACH = 600000;
const FORECAST_AGAIN = 60000;
const percent = (portion) => `${rate(100 * portion)} %`;

function showForecast(found) {
  at("freshness").hidden = false;
  const hours = found.age / HOUR;
  const age = hours % 24 ? `${rate(hours)} h` : `${rate(hours / 24)} d`;
  at("forecast-age").textContent = `outdated for ${age} at most`;
  at("forecast-said").textContent = `${percent(found.portion)} of the pages outdated for ${age} at`
    + ` most: ${found.words}.`;
  const all = { ...found.whole, delay: "all" };
  at("forecast").replaceChildren(...[...found.classes, all].map((each) => {
    const row = element("tr");
    const cells = [each.delay, each.pages_each, number(each.hosts), number(each.pages),
      percent(each.within), percent(each.fresh), rate(each.requests), each.limit || "–"];
    row.append(...cells.map((text) => element("td", text)));
    return row;
  }));
}

// Reading the rows takes the crawl a second, so this is asked seldom; never again without a schedule.
async function refreshForecast() {
  let again = FORECAST_EACH;
  try {
    const found = await ask("forecast");
    if (found === null) return;
    showForecast(found);
  } catch {
    again = FORECAST_AGAIN;
  }
  setTimeout(refreshForecast, again);
}

// --- seeds by tag ---

const TAGS_EACH = 60000;
const TAGS_SHOWN = 200;

function showTags(tags) {
  at("seeds").hidden = false;
  at("tags").replaceChildren(...tags.slice(0, TAGS_SHOWN).map((each) => {
    const row = element("tr");
    const counts = [each.seeds, each.done, each.limited, each.failed, each.waiting, each.pages];
    const cells = [...counts.map(number), rate(each.bytes / 1e6), each.last_fetch || "–"];
    const name = element("td");
    name.append(clipped("span", each.tag || "(no tag)"));
    row.append(name, ...cells.map((text) => element("td", text)));
    return row;
  }));
}

// All seeds are read for it, so this is asked seldom.
async function refreshTags() {
  try {
    const found = await ask("seeds", { limit: 0 });
    if (found.tags.length) showTags(found.tags);
  } catch {
    // A process may be starting again.
  }
  setTimeout(refreshTags, TAGS_EACH);
}

// --- nodes ---

function showNodes(found) {
  at("ring").hidden = !found.length;
  at("nodes").replaceChildren(...found.map((node) => {
    const row = element("tr");
    const known = (value) => (value < 0 ? "–" : number(value));
    const cells = [
      node.state,
      `${rate(100 * node.share)} %`, known(node.done), known(node.queued), known(node.outbox),
      known(node.inbox), node.seconds_ago < 0 ? "–" : `${number(node.seconds_ago)} s ago`,
    ];
    const name = element("td");
    const label = clipped(node.page ? "a" : "span",
      node.is_own ? `${node.node} (this one)` : node.node);
    // The page of a process of this machine.
    if (node.page) label.href = `${node.page}/`;
    name.append(label);
    row.append(name, ...cells.map((text) => element("td", text)));
    if (node.state !== "agreed") row.children[1].className = "bad";
    return row;
  }));
}

// --- again and again ---

const EACH = 2000;
// The figures come each second. A page that is refused them asks for them.
const events = new EventSource("/events");
events.addEventListener("message", (event) => showStatus(JSON.parse(event.data)));

async function refresh() {
  try {
    perSecond = showHistory(await ask("history"));
    if (events.readyState !== EventSource.OPEN) showStatus(await ask("status"));
    hosts = await askHosts();
    showHosts();
    showPages(await ask("pages"));
    showNodes(await ask("nodes"));
    await showAnswers();
  } catch {
    at("state").textContent = "The crawl does not answer: it has ended, or is very busy."
      + ` Its end writes a report to ${report}.`;
  }
  setTimeout(refresh, document.hidden ? 5 * EACH : EACH);
}

at("find").addEventListener("input", showHosts);
for (const id of ["sort", "only"]) {
  at(id).addEventListener("change", async () => {
    hosts = await askHosts().catch(() => hosts);
    showHosts();
  });
}
at("sorting").addEventListener("submit", (event) => event.preventDefault());
refresh();
refreshForecast();
refreshTags();
