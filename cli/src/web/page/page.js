// Shows what /live tells. Everything that comes from the daemon is set as text, never as HTML.

import { SPAN, Throughput, spark } from "./chart.js";
import { bytes, duration, percent, rate, timeOfDay } from "./format.js";

const at = (id) => document.getElementById(id);

/** Sessions that are listed. */
const SESSIONS = 12;

/** A session that was silent for so long, in milliseconds, is not listed. */
const SILENT = 60_000;

/** How long a change of a path may hold, in seconds; the first one has no end of its own. */
const LIMITS = [
  ["", "until a reload"],
  ["600", "for 10 min"],
  ["3600", "for 1 h"],
  ["28800", "for 8 h"],
  ["86400", "for 1 day"],
];

const chart = new Throughput(at("throughput"));
const colours = new Map();
const cards = new Map();
let points = [];
let before = null;
let stream = null;
let token = null;

/** Every path with its peer. Where a new path takes the place of one with the same ends, only it. */
function pathsOf(state) {
  const paths = new Map();
  for (const peer of state.peers) {
    for (const path of peer.paths) {
      if (path.works || !paths.get(path.key)?.path.works) paths.set(path.key, { peer, path });
    }
  }
  return [...paths.values()];
}

function element(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

/** The colour of a path: each gets the next one, and keeps it. */
function colourOf(key) {
  if (!colours.has(key)) colours.set(key, colours.size % 8);
  return colours.get(key);
}

/** Adds a sample of the counters, [{ key, sent, received, … }], at the daemon's time `t`. */
function addSample({ t, pid, paths }) {
  const now = new Map(paths.map((path) => [path.key, path]));
  const elapsed = before && before.pid === pid ? t - before.t : 0;
  if (elapsed < 0 || (before && before.pid !== pid)) points = [];
  if (elapsed > 0) {
    const values = new Map();
    for (const [key, counters] of now) {
      const former = before.paths.get(key);
      if (!former || counters.sent < former.sent || counters.received < former.received) continue;
      const bps = (name) => ((counters[name] - former[name]) * 8000) / elapsed;
      values.set(key, { down: bps("received"), up: bps("sent"), copies: bps("copied"), rtt: counters.rtt_ms, loss: counters.loss });
    }
    points.push({ t, values });
  }
  points = points.filter((point) => point.t > t - SPAN - 5000);
  before = { t, pid, paths: now };
}

function onHistory(samples) {
  points = [];
  before = null;
  samples.forEach(addSample);
}

function onState(state) {
  if (isLost) at("lost").hidden = true;
  isLost = false;
  at("main").hidden = false;
  document.title = `${state.problems.length ? "✕ " : ""}${state.interface} – mpip`;
  at("interface").textContent = state.interface;
  at("summary").textContent = state.summary;
  at("summary").className = state.problems.length ? "wrong" : "good";
  at("about").textContent = `${state.node}, mpip ${state.version}, up ${duration(state.t)}`;
  at("problems").hidden = state.problems.length === 0;
  at("problems").replaceChildren(...state.problems.map((problem) => element("li", "", problem)));
  at("more-peers").hidden = state.more_peers === 0;
  at("more-peers").textContent = `${state.more_peers} more peers are not shown`;

  const paths = pathsOf(state).map(({ path }) => path);
  if (before?.t !== state.t) addSample({ t: state.t, pid: state.pid, paths });
  showThroughput(state);
  showPaths(state);
  showSessions(state);
}

/** A path's interface, with its label if there is one. */
function interfaceName(path) {
  return path.label ? `${path.interface} (${path.label})` : path.interface;
}

/** What to call a path: its interface, and more where several have it. */
function names(state) {
  const count = new Map();
  const all = pathsOf(state);
  for (const { path } of all) count.set(path.interface, (count.get(path.interface) ?? 0) + 1);
  return new Map(
    all.map(({ path }) => {
      const more = count.get(path.interface) > 1 ? ` to ${path.remote}` : "";
      return [path.key, interfaceName(path) + more];
    }),
  );
}

function showThroughput(state) {
  const named = names(state);
  const series = [...named].map(([key, name]) => ({ key, name, colour: colourOf(key) }));
  chart.show(points, series);
  const latest = points.at(-1)?.values;
  const sum = (way) => [...(latest?.values() ?? [])].reduce((total, value) => total + value[way], 0);
  at("down").textContent = latest ? rate(sum("down")) : "–";
  at("up").textContent = latest ? rate(sum("up")) : "–";
  at("legend").replaceChildren(
    ...series.map(({ name, colour }) => element("li", "", element("span", `swatch c${colour}`), name)),
  );
}

function tile(title) {
  const value = element("b", "");
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("aria-hidden", "true");
  return { value, svg, box: element("div", "spark", element("p", "", element("span", "quiet", title), value), svg) };
}

function newCard(key) {
  const card = {
    name: element("span", ""),
    peer: element("small", ""),
    state: element("p", ""),
    down: element("span", ""),
    up: element("span", ""),
    copies: element("p", "quiet"),
    rtt: tile("RTT"),
    loss: tile("Loss"),
    ends: element("p", "ends"),
    button: element("button", ""),
    limit: element("select", "", ...LIMITS.map(([seconds, words]) => new Option(words, seconds))),
  };
  card.button.type = "button";
  card.change = element("div", "change", card.button, card.limit);
  card.limit.setAttribute("aria-label", "For how long");
  card.copies.title = "copies of packets that went by another path at the same time, by a rule with redundant";
  card.box = element(
    "article",
    "",
    element("h3", "", card.name, card.peer),
    card.state,
    element("p", "rates", card.down, card.up),
    card.copies,
    element("div", "sparks", card.rtt.box, card.loss.box),
    card.ends,
    card.change,
  );
  cards.set(key, card);
  return card;
}

function showPaths(state) {
  const boxes = [];
  const latest = points.at(-1)?.values;
  for (const { peer, path } of pathsOf(state)) {
    const key = path.key;
    const card = cards.get(key) ?? newCard(key);
    const now = latest?.get(key);
    card.box.className = `card path c${colourOf(key)}${path.works ? "" : " idle"}`;
    card.name.textContent = interfaceName(path);
    card.peer.textContent = `to ${peer.name}, path ${path.id}`;
    card.state.className = `state ${path.condition}`;
    card.state.textContent = path.words;
    card.down.textContent = `↓ ${now ? rate(now.down) : "–"}`;
    card.up.textContent = `↑ ${now ? rate(now.up) : "–"}`;
    card.copies.hidden = path.copied === 0;
    card.copies.textContent = `${now ? rate(now.copies) : "–"} of ↑ are copies`;
    card.rtt.value.textContent = duration(path.rtt_ms);
    card.loss.value.textContent = path.works ? percent(path.loss) : "–";
    spark(card.rtt.svg, points, key, "rtt", 1);
    spark(card.loss.svg, points, key, "loss", 0.02);
    const via = path.encapsulation === "tcp" ? " by TCP" : "";
    card.ends.textContent = `${path.local} → ${path.remote}${via}`;
    card.change.hidden = token === null || !(path.works || path.condition === "wrong");
    card.button.textContent = path.state === "standby" ? "Use again" : "Put on standby";
    card.button.title = `all paths by ${path.interface}`;
    card.button.onclick = () => setPath(card, path.interface, path.state === "standby" ? "active" : "standby");
    boxes.push(card.box);
  }
  // A list that is open closes when it is put in its place again.
  const shown = at("paths").children;
  if (boxes.length !== shown.length || boxes.some((box, place) => box !== shown[place])) {
    at("paths").replaceChildren(...boxes);
  }
}

let formerSessions = { t: 0, bytes: new Map() };

/** Both directions of a connection are one row. */
function connections(state) {
  const rows = new Map();
  const elapsed = state.t - formerSessions.t;
  const counts = new Map();
  for (const peer of state.peers) {
    for (const session of peer.sessions) {
      const [here, there] = session.out
        ? [session.source, session.destination]
        : [session.destination, session.source];
      const id = `${peer.name}\n${session.protocol}\n${here}\n${there}`;
      const fresh = { peer: peer.name, protocol: session.protocol, here, there, bytes: 0, up: 0, down: 0, idle: Infinity, paths: new Set() };
      const row = rows.get(id) ?? fresh;
      const counter = `${peer.name}\n${session.out}\n${session.id}\n${id}`;
      counts.set(counter, session.bytes);
      const former = formerSessions.bytes.get(counter);
      const bps = former === undefined || elapsed <= 0 ? 0 : (Math.max(0, session.bytes - former) * 8000) / elapsed;
      row[session.out ? "up" : "down"] += bps;
      row.bytes += session.bytes;
      row.idle = Math.min(row.idle, session.idle_ms);
      session.paths.forEach((path) => row.paths.add(path));
      rows.set(id, row);
    }
  }
  formerSessions = { t: state.t, bytes: counts };
  return [...rows.values()];
}

function showSessions(state) {
  const named = names(state);
  const keys = new Map(
    state.peers.flatMap((peer) => peer.paths.map((path) => [`${peer.name}\n${path.id}`, path.key])),
  );
  const rows = connections(state).filter((row) => row.idle < SILENT);
  rows.sort((a, b) => b.up + b.down - (a.up + a.down) || a.idle - b.idle);
  // A connection is two sessions, one in each direction.
  const more = rows.length > SESSIONS ? `, the ${SESSIONS} fastest` : "";
  at("session-count").textContent = rows.length ? `${rows.length} in use${more}` : "none in use";
  at("sessions").hidden = rows.length === 0;
  const body = rows.slice(0, SESSIONS).map((row) => {
    const chips = [...row.paths].sort((a, b) => a - b).map((id) => {
      const key = keys.get(`${row.peer}\n${id}`) ?? "";
      const chip = element("span", `swatch c${colourOf(key)}`);
      chip.title = named.get(key) ?? `path ${id}`;
      chip.setAttribute("role", "img");
      chip.setAttribute("aria-label", chip.title);
      return chip;
    });
    const still = row.up + row.down < 1;
    return element(
      "tr",
      still ? "still" : "",
      element("td", "", element("span", "protocol", row.protocol), row.there),
      element("td", "", row.here),
      element("td", "", row.down < 1 ? "–" : rate(row.down)),
      element("td", "", row.up < 1 ? "–" : rate(row.up)),
      element("td", "", bytes(row.bytes)),
      element("td", "", ...chips),
    );
  });
  at("sessions").tBodies[0].replaceChildren(...body);
}

function onEvents(events) {
  at("events").replaceChildren(
    ...events.slice(0, 60).map((event) => {
      const time = element("time", "", timeOfDay(event.time));
      time.dateTime = event.time;
      time.title = event.time;
      return element("li", event.condition ?? "", time, element("span", "", event.message));
    }),
  );
}

let isLost = false;

function lost(words) {
  isLost = true;
  notice(words);
  at("summary").textContent = "not connected";
  at("summary").className = "wrong";
}

function open() {
  if (stream || document.hidden) return;
  stream = new EventSource("/live");
  const on = (name, handler) => stream.addEventListener(name, (event) => handler(JSON.parse(event.data)));
  on("history", onHistory);
  on("state", onState);
  on("events", onEvents);
  on("down", ({ error }) => lost(error));
  stream.addEventListener("error", () => {
    lost("The connection to mpip web is lost. Trying again …");
    if (stream.readyState === EventSource.CLOSED) {
      close();
      setTimeout(start, 2000);
    }
  });
}

function close() {
  stream?.close();
  stream = null;
}

function post(path, content) {
  const headers = { "content-type": "application/json" };
  if (token) headers["x-mpip-token"] = token;
  return fetch(path, { method: "POST", headers, body: JSON.stringify(content) });
}

async function setPath({ button, limit }, name, state) {
  button.disabled = true;
  try {
    const change = { interface: name, state };
    if (limit.value) change.for_s = Number(limit.value);
    const answer = await post("/path", change);
    if (answer.ok) at("lost").hidden = true;
    else notice(await answer.text());
    if (answer.status === 401) start();
  } catch {
    notice("mpip web does not answer.");
  }
  button.disabled = false;
}

function notice(words) {
  at("lost").textContent = words;
  at("lost").hidden = false;
}

/** Asks who we are, and shows the page or the question for the password. */
async function start() {
  let session;
  try {
    session = await (await fetch("/session")).json();
  } catch {
    lost("mpip web does not answer. Trying again …");
    setTimeout(start, 2000);
    return;
  }
  token = session.token;
  at("mode").hidden = session.password;
  at("logout").hidden = !session.token;
  at("login").hidden = session.may_read;
  if (session.may_read) {
    open();
  } else {
    at("main").hidden = true;
    at("summary").textContent = "";
    at("password").focus();
  }
}

at("mode").title = "Started with --password-file, mpip web lets you put paths on standby here.";

at("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const answer = await post("/login", { password: at("password").value });
  at("login-error").textContent = answer.ok ? "" : await answer.text();
  at("password").value = "";
  if (answer.ok) start();
});

at("logout").addEventListener("click", async () => {
  close();
  await post("/logout", {});
  location.reload();
});

document.addEventListener("visibilitychange", () => (document.hidden ? close() : start()));
start();
