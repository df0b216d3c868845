// Shows /overview.json, every second while the page is visible. What agents have chosen (names, paths) is put in as text, never as markup.
"use strict";

const EVERY_MS = 1000;
const PATIENCE_MS = 8000;
const POINTS = 120;
// A chart is as wide as this many until there are more.
const POINTS_LEAST = 30;

const $ = (id) => document.getElementById(id);

function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

// Changes only what is different, so that a selection stays.
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
// A name breaks before a slash, behind other marks between its parts, and where a part is wider than a column need be.
const PARTS = /\/*[^\/.:_@-]{0,11}[.:_@-]*/gu;
function setName(node, text) {
  if (node.textContent === text) return;
  const parts = text.match(PARTS).filter(Boolean);
  node.replaceChildren(...parts.flatMap((part, at) => (at > 0 ? [make("wbr"), part] : [part])));
}
function setClass(node, name) {
  if (node.className !== name) node.className = name;
}

const escapes = (code) => "\\x" + code.toString(16).padStart(2, "0");

// A name: a string, or {b64} where its bytes are not UTF-8. What cannot be seen is shown by its code.
function name(value) {
  if (value !== null && typeof value === "object") {
    return Array.from(atob(value.b64), (c) => (c >= " " && c <= "~" ? c : escapes(c.charCodeAt(0)))).join("");
  }
  return String(value).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) => "\\u{" + c.codePointAt(0).toString(16) + "}");
}

const who = (row) => name(row.label) || row.handle.slice(0, 8);
const file = (row) => name(row.path) || "#" + row.object;
const count = (n) => n.toLocaleString("en");

// A number stays beside its unit.
const TIED = "\u00a0";

function span(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return Math.round(ms) + TIED + "ms";
  if (ms < 60000) return (ms / 1000).toFixed(1) + TIED + "s";
  if (ms < 3600000) return Math.floor(ms / 60000) + TIED + "min " + Math.floor((ms % 60000) / 1000) + TIED + "s";
  if (ms < 86400000) return Math.floor(ms / 3600000) + TIED + "h " + Math.floor((ms % 3600000) / 60000) + TIED + "min";
  return Math.floor(ms / 86400000) + TIED + "d " + Math.floor((ms % 86400000) / 3600000) + TIED + "h";
}

// Columns: [title, class]. Rows: {cells: [text or [text, class]], first}. `more` is said below.
function table(id, columns, rows, empty, more) {
  const node = $(id);
  if (!node.tHead) {
    const head = node.createTHead().insertRow();
    for (const [title, className] of columns) {
      const cell = make("th", className, title);
      cell.scope = "col";
      head.append(cell);
    }
    node.createTBody();
  }
  const body = node.tBodies[0];
  const last = rows.length === 0 ? empty : more;
  const wanted = rows.length + (last ? 1 : 0);
  while (body.rows.length > wanted) body.deleteRow(-1);
  while (body.rows.length < wanted) body.insertRow();
  rows.forEach((row, at) => fill(body.rows[at], row, columns));
  if (last) {
    const line = body.rows[rows.length];
    setClass(line, "first");
    while (line.cells.length > 1) line.deleteCell(-1);
    const cell = line.cells[0] || line.insertCell();
    cell.colSpan = columns.length;
    setClass(cell, "none");
    setText(cell, last);
  }
}

function fill(line, row, columns) {
  setClass(line, row.first ? "first" : "");
  while (line.cells.length < columns.length) line.insertCell();
  row.cells.forEach((value, at) => {
    const cell = line.cells[at];
    const [text, className] = Array.isArray(value) ? value : [value, ""];
    if (cell.colSpan !== 1) cell.colSpan = 1;
    (columns[at][1].startsWith("name") ? setName : setText)(cell, text);
    setClass(cell, [columns[at][1], className].filter(Boolean).join(" "));
  });
}

const standingClass = (standing) => (standing === "good" ? "good" : standing === "timing out" ? "warn" : "bad");

function showHead(o) {
  const isStandby = o.state === "standby";
  const more = isStandby ? `lease of the group ${span(o.lease_ms)}` : `up ${span(o.uptime_ms)} · lease τ ${span(o.lease_ms)}`;
  setText($("who"), `${o.who} · version ${o.version} · ${more}`);
  const good = o.state === "serving";
  const standby = o.group && o.group.serves ? `stands by: ${o.group.serves} serves` : "stands by: no server of the group serves";
  const text = isStandby ? standby : o.state === "grace" ? `grace: no locks are granted for up to ${span(o.grace_left_ms)}` : name(o.state);
  setText($("state"), good && !o.room ? "serving, but its store has no room" : text);
  setClass($("state"), "badge " + (good ? (o.room ? "good" : "bad") : isStandby || o.state === "grace" || o.state === "starting" ? "warn" : "bad"));
  $("names").hidden = o.named;
}

function showTotals(o) {
  const t = o.totals;
  const tiles = [
    ["sessions", t.sessions], ["timing out", t.timing_out, t.timing_out > 0 ? "warn" : ""], ["locks, caches", t.locks],
    ["waiting", t.waiting], ["cache demands", t.demands], ["ephemeral", t.ephemerals], ["named leases", t.named_leases], ["files", t.objects],
  ];
  const list = $("totals");
  while (list.children.length < tiles.length) {
    const tile = make("div");
    tile.append(make("dt"), make("dd"));
    list.append(tile);
  }
  tiles.forEach(([title, value, className], at) => {
    const [dt, dd] = list.children[at].children;
    setText(dt, title);
    setText(dd, count(value));
    setClass(dd, className || "");
  });
}

// The span below which a part of what was measured between two looks lies; null: nothing was measured.
function quantile(part, now, before) {
  const total = now.count - before.count;
  if (total <= 0) return null;
  const at = now.up_to.findIndex((n, bound) => n - before.up_to[bound] >= part * total);
  return at < 0 ? now.bounds_us[now.bounds_us.length - 1] / 1000 : now.bounds_us[at] / 1000;
}

const perSecond = (read) => (now, before, seconds) => (read(now) - read(before)) / seconds;
const rate = (n) => (n >= 100 ? count(Math.round(n)) : n.toFixed(1)) + "/s";
const under = (ms) => "≤" + TIED + (ms < 1 ? Math.round(ms * 1000) + TIED + "µs" : span(ms));

const CHARTS = [
  { title: "Requests", value: perSecond((c) => c.requests), text: rate, points: [] },
  { title: "Datagrams in and out", value: perSecond((c) => c.datagrams_in + c.datagrams_out), text: rate, points: [] },
  { title: "Demands", value: perSecond((c) => c.demands), text: rate, points: [] },
  { title: "Sessions opened", value: perSecond((c) => c.sessions_opened), text: rate, points: [] },
  { title: "Wait of requests, 99 %", value: (now, before) => quantile(0.99, now.waits, before.waits), text: under, points: [] },
  { title: "Commit, 99 %", value: (now, before) => quantile(0.99, now.commits, before.commits), text: under, points: [] },
];

const SVG = "http://www.w3.org/2000/svg";

function draw(chart) {
  if (!chart.node) {
    chart.node = make("div", "chart");
    const title = make("h3");
    chart.now = make("b");
    title.append(make("span", "", chart.title), chart.now);
    const svg = document.createElementNS(SVG, "svg");
    chart.svg = svg;
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", chart.title);
    chart.area = document.createElementNS(SVG, "polygon");
    chart.curve = document.createElementNS(SVG, "polyline");
    svg.append(chart.area, chart.curve);
    chart.most = make("p");
    chart.node.append(title, svg, chart.most);
    $("charts").append(chart.node);
  }
  const known = chart.points.filter((value) => value !== null);
  const most = Math.max(0, ...known);
  const last = chart.points[chart.points.length - 1];
  setText(chart.now, last === null || last === undefined ? "–" : chart.text(last));
  setText(chart.most, known.length ? `most ${chart.text(most)} in ${chart.points.length} s` : "nothing yet");
  const wide = Math.max(POINTS_LEAST, chart.points.length);
  const from = wide - chart.points.length;
  const line = chart.points.map((value, at) => `${from + at},${(39 - (most > 0 ? ((value || 0) / most) * 37 : 0)).toFixed(1)}`);
  chart.curve.setAttribute("points", line.join(" "));
  chart.area.setAttribute("points", line.length ? `${from},40 ${line.join(" ")} ${wide - 1},40` : "");
  chart.svg.setAttribute("viewBox", `0 0 ${wide - 1} 40`);
}

let before = null;

function showCharts(o, at) {
  const seconds = before && (at - before.at) / 1000;
  // The counters of a server that has started anew begin at 0.
  const isSame = before && before.who === o.who && o.counters.datagrams_in >= before.counters.datagrams_in;
  for (const chart of CHARTS) {
    if (!isSame) chart.points = [];
    else {
      chart.points.push(chart.value(o.counters, before.counters, seconds));
      if (chart.points.length > POINTS) chart.points.shift();
    }
    draw(chart);
  }
  before = { at, who: o.who, counters: o.counters };
}

// The steps of a failover: [ms after the failure, what, class].
function steps(f) {
  const all = [[0, `failed: ${f.cause}; it held ${count(f.locks)} ${f.locks === 1 ? "lock" : "locks"}`, "bad"]];
  if (f.nacked_ms !== null) all.push([f.nacked_ms, "its agent was told by a NACK: it gives up its locks itself", "warn"]);
  if (f.end === "rescued") all.push([f.ended_ms, "rescued: what was missing came, nothing is lost", "good"]);
  else if (f.end === "given up") all.push([f.ended_ms, "its agent gave the session up", "warn"]);
  else if (f.end === "waited") all.push([f.ended_ms, "τ(1+δ) is over: its locks are taken", "bad"]);
  else all.push([f.wait_ms, "τ(1+δ) will be over: its locks are taken then", "soft"]);
  if (f.freed_ms !== null) all.push([f.freed_ms, "its end is durable, others have its locks", "good"]);
  return all.sort((a, b) => a[0] - b[0]);
}

function showFailovers(list) {
  $("no-failovers").hidden = list.length > 0;
  const box = $("failovers");
  while (box.children.length > list.length) box.lastChild.remove();
  list.forEach((f, at) => {
    let card = box.children[at];
    if (!card) {
      card = make("div", "failover");
      const title = make("h3");
      title.append(make("span", "name"), make("small", "soft"));
      card.append(title, make("progress"), make("ol"));
      box.append(card);
    }
    const [title, bar, ladder] = card.children;
    setName(title.children[0], who(f));
    setText(title.children[1], `${span(f.ago_ms)} ago`);
    bar.hidden = f.end !== null;
    bar.max = Math.max(1, f.wait_ms);
    bar.value = Math.min(f.ago_ms, f.wait_ms);
    const rungs = steps(f);
    while (ladder.children.length > rungs.length) ladder.lastChild.remove();
    rungs.forEach(([ms, what, className], n) => {
      let rung = ladder.children[n];
      if (!rung) {
        rung = make("li");
        rung.append(make("time"), make("span"));
        ladder.append(rung);
      }
      setText(rung.children[0], ms === 0 ? "0" : "+" + span(ms));
      setText(rung.children[1], what);
      setClass(rung, className);
    });
  });
}

function showLocks(o) {
  const rows = [];
  for (const lock of o.locks) {
    lock.users.forEach((user, at) => {
      const holds = user.state === "holds";
      const bound = user.bound_ms ? span(user.bound_ms) + (holds && user.standing === "good" ? " if" + TIED + "gone" : "") : "–";
      rows.push({
        first: at === 0,
        cells: [
          at === 0 ? file(lock) : "", [user.state, holds ? "good" : "warn"], user.mode, who(user), span(user.since_ms),
          [user.standing, standingClass(user.standing)], bound, user.token !== "0" ? user.token : "–",
        ],
      });
    });
    const waiting = lock.users.filter((user) => user.state === "waits").length;
    const more = [];
    if (lock.more_holders) more.push("more hold it");
    if (lock.waiters > waiting) more.push(`${count(lock.waiters - waiting)} more wait`);
    if (more.length) rows.push({ first: false, cells: ["", ["… " + more.join(", "), "none"], "", "", "", "", "", ""] });
  }
  const columns = [
    ["File", "name"], ["State", ""], ["Mode", "wide"], ["Who", "name"], ["Since", "number"], ["Standing", "wide"], ["At most", "number"], ["Token", "number wide"],
  ];
  table("locks", columns, rows, "Nobody holds an advisory lock.", o.locks.length >= 50 ? "More locks are held: cistern locks lists all." : "");
}

function showSessions(o) {
  const rows = o.sessions.map((s) => ({
    first: true,
    cells: [
      who(s), s.address || "–", [s.standing + (s.waited_for ? ", waited for" : ""), standingClass(s.standing)],
      s.left_ms === null ? span(s.failover_ms) + " if" + TIED + "gone" : span(s.left_ms), count(s.locks), count(s.waits), span(s.lease_ms), span(s.age_ms),
    ],
  }));
  const columns = [
    ["Agent", "name"], ["Address", "name wide"], ["Standing", ""], ["At most", "number"], ["Locks", "number"], ["Waits", "number wide"], ["Lease", "number wide"], ["Age", "number wide"],
  ];
  const more = o.totals.sessions + o.totals.timing_out - o.sessions.length;
  table("sessions", columns, rows, "No agent has a session.", more > 0 ? `… and ${count(more)} more` : "");
}

function showDemands(o) {
  const rows = o.demands.map((d) => ({
    first: true,
    cells: [file(d), `${d.class}, ${d.mode}`, who(d), d.keep, d.is_sent ? "told" : "in its turn", span(d.held_ms)],
  }));
  const columns = [["File", "name"], ["Lock", "wide"], ["Holder", "name"], ["May keep", ""], ["Demand", ""], ["Held", "number"]];
  table("demands", columns, rows, "Nothing is asked back.", "");
}

function showGroup(group) {
  $("group").hidden = group === null;
  if (group === null) return;
  const rows = group.members.map((m) => ({
    first: true,
    cells: [
      name(m.name), m.address || "–", m.name === group.serves ? ["serves", "good"] : ["stands by", "soft"],
      m.name === group.me ? "this one" : m.heard_ms === undefined ? "not heard" : span(m.heard_ms) + " ago", [name(m.trouble || ""), "warn"],
    ],
  }));
  const columns = [["Server", "name"], ["Address", "name wide"], ["Role", ""], ["Heard", "number"], ["Trouble", ""]];
  table("members", columns, rows, "", "");
}

function show(o, at) {
  showHead(o);
  showTotals(o);
  showCharts(o, at);
  showFailovers(o.failovers);
  showLocks(o);
  showSessions(o);
  showGroup(o.group);
  showDemands(o);
}

// Tokens and numbers of files are longer than what JavaScript counts exactly, so they stay text. Within a string of JSON no quotation mark stands alone, so
// nothing that an agent has chosen is taken for one.
const whole = (json) => json.replace(/"(token|object)":(\d+)/g, '"$1":"$2"');

let shownAt = null;

async function look() {
  const patience = new AbortController();
  const timer = setTimeout(() => patience.abort(), PATIENCE_MS);
  try {
    const answer = await fetch("overview.json", { signal: patience.signal, cache: "no-store" });
    if (!answer.ok) throw new Error((await answer.text()).trim());
    const o = JSON.parse(whole(await answer.text()));
    show(o, performance.now());
    shownAt = new Date();
    $("trouble").hidden = true;
    document.documentElement.dataset.shown = "yes";
  } catch (e) {
    const since = shownAt ? `; what is below is of ${shownAt.toLocaleTimeString()}` : "";
    const why = e instanceof TypeError ? "it cannot be reached" : e.name === "AbortError" ? "it does not answer" : e.message;
    setText($("trouble"), `No news of the server: ${why}${since}.`);
    $("trouble").hidden = false;
  } finally {
    clearTimeout(timer);
  }
}

async function watch() {
  for (;;) {
    if (!document.hidden) await look();
    await new Promise((wake) => setTimeout(wake, EVERY_MS));
  }
}

watch();
