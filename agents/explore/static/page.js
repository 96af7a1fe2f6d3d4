// Navigation without reloading: a click on a link to a state fetches that state and replaces the shown state.
"use strict";

const token = document.querySelector("meta[name=explore-token]").content;
const at = (id) => document.getElementById(id);
const query = () => at("state").dataset.query;
let latest = 0;  // number of the latest request: answers to earlier requests are not shown
let playing = null;  // timer of the next step

async function text(path, options) {
  const answer = await fetch(path, options);
  return { status: answer.status, body: await answer.text() };
}

function refuse(html) {
  at("refused").innerHTML = html;
}

// Show a state; keep the focus if the focused element still exists.
function show(html, history_entry) {
  const focused = document.activeElement && document.activeElement.id;
  const open = document.querySelector("#state .way details");
  const opened = open !== null && open.open;
  at("state").outerHTML = html;
  refuse("");
  const details = document.querySelector("#state .way details");
  if (details) details.open = opened;
  if (focused && document.activeElement === document.body) {
    const heir = at(focused) || document.querySelector("#state .moves a") || at("undo");
    if (heir) heir.focus({ preventScroll: true });
  }
  if (history_entry) history[history_entry]({}, "", "/?" + query());
  at("said").textContent = at("state").dataset.said;
  equip();
}

// Connect the controls of a newly shown state.
function equip() {
  const players = JSON.parse(at("state").dataset.players);
  const select = at("player"), chosen = select.value;
  if (JSON.stringify(players.map((one) => one[0])) !== JSON.stringify([...select.options].map((one) => one.value))) {
    select.replaceChildren(...players.map(([name, words]) => new Option(words, name)));
    if (players.some((one) => one[0] === chosen)) select.value = chosen;
  }
  at("play").hidden = players.length === 0;
  for (const id of ["copy", "measure"]) if (at(id)) at(id).hidden = false;
  if (at("state").dataset.state === "waiting") setTimeout(() => go(query(), "replaceState", null, true), 600);
  else follow();
}

// Go to the state of an address; true if it is shown. `clicked`: time of the click by the clock of events; null without a click.
async function go(address, history_entry, clicked = null, again = false) {
  const number = ++latest, before = query();
  let answer;
  try {
    answer = await text("/state?" + address);
  } catch {
    if (number === latest) refuse('<div class="refusal"><p>The explorer does not answer: is it still running?</p></div>');
    return false;
  }
  if (number !== latest || (again && query() !== before)) return false;
  if (answer.status === 204) return false;
  if (answer.status !== 200) {
    refuse(answer.body);
    return false;
  }
  const listing = playing === null ? null : await text("/code?" + query_of(answer.body)).catch(() => null);
  if (number !== latest) return false;
  show(answer.body, history_entry);
  put(query(), listing);
  if (clicked !== null) requestAnimationFrame(() => setTimeout(() => performance.measure("click to view", { start: clicked }), 0));
  return true;
}

const query_of = (html) => new DOMParser().parseFromString(html, "text/html").getElementById("state").dataset.query;

// Fetch the code of the shown state. Code of another state is faint. A walk that plays shows each state with its code.
let code_timer = null;
function follow() {
  mark();
  clearTimeout(code_timer);
  if (playing !== null) return;
  code_timer = setTimeout(async () => {
    const asked = query();
    put(asked, await text("/code?" + asked).catch(() => null));
  }, 60);
}

// Show the answer of /code to a query, unless there is none or another state is shown.
function put(asked, answer) {
  if (answer === null || answer.status === 204 || asked !== query()) return;
  const pane = at("code");
  pane.innerHTML = answer.body;
  pane.dataset.query = asked;
  mark();
  const changed = pane.querySelector(".changed");
  if (changed) pane.scrollTop = Math.max(0, changed.offsetTop - pane.clientHeight / 3);
}

function mark() {
  at("code").classList.toggle("stale", at("code").dataset.query !== query());
}

function pause() {
  clearTimeout(playing);
  playing = null;
  at("run").textContent = "Play";
  at("run").setAttribute("aria-pressed", "false");
}

const step = (entry, clicked) => go(query() + "&player=" + encodeURIComponent(at("player").value), entry, clicked);
const pace = () => Math.pow(2, Number(at("speed").value));  // steps a second

async function run() {
  const begun = performance.now();
  if (!(await step("replaceState")) || at("state").dataset.state === "finished") return pause();
  if (playing !== null) playing = setTimeout(run, Math.max(0, 1000 / pace() - (performance.now() - begun)));
}

function play() {
  if (playing !== null) return pause();
  history.pushState({}, "", "/?" + query());  // going back returns to the state where playing began
  playing = 0;
  at("run").textContent = "Pause";
  at("run").setAttribute("aria-pressed", "true");
  run();
}

async function measure() {
  const asked = query(), button = at("measure"), begun = performance.now();
  button.disabled = true;
  const said = setInterval(() => {
    if (asked === query()) at("measured").textContent = `compiling, verifying and timing: ${Math.round((performance.now() - begun) / 1000)} s`;
  }, 500);
  const answer = await text("/measure", { method: "POST", headers: { "X-Explore-Token": token }, body: asked }).catch(() => null);
  clearInterval(said);
  if (asked !== query()) return;
  at("measure").disabled = false;
  at("measured").innerHTML = answer === null ? "The explorer does not answer." : answer.body;
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-go]");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0) {
    event.preventDefault();
    pause();
    go(link.href.split("?")[1] || "", "pushState", event.timeStamp);
  } else if (event.target.id === "step") {
    pause();
    step("pushState", event.timeStamp);
  } else if (event.target.id === "run") {
    play();
  } else if (event.target.id === "measure") {
    measure();
  } else if (event.target.id === "copy") {
    navigator.clipboard.writeText(location.href).then(() => (at("said").textContent = "The address is copied."));
  }
});

at("task").addEventListener("submit", (event) => {
  event.preventDefault();
  pause();
  const fields = new URLSearchParams(new FormData(at("task")));
  if (fields.get("seed") === "0" || fields.get("seed") === "") fields.delete("seed");
  go(fields.toString().replaceAll("+", "%20"), "pushState");
});

at("speed").addEventListener("input", () => {
  at("speed-said").textContent = `${Number(pace().toPrecision(2))} steps/s`;
});

window.addEventListener("popstate", () => {
  pause();
  const fields = new URLSearchParams(location.search);
  for (const id of ["operator", "machine", "space", "seed"]) if (fields.has(id)) at(id).value = fields.get(id);
  go(location.search.slice(1));
});

if (at("state")) equip();
