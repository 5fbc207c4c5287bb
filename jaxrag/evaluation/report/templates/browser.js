// The question browser: unpacks the embedded traces and draws only what is looked at.
"use strict";
const PAGE = 40;
const COLOURS = 8;

function make(tag, kind, ...children) {
  const node = document.createElement(tag);
  if (kind) node.className = kind;
  for (const child of children) if (child !== null) node.append(child);
  return node;
}

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function searched(answer) {
  return Boolean(answer && answer.trace && answer.trace.searches && answer.trace.searches.length);
}

function uncertainty(question) {
  for (const answer of question.answers) {
    const direct = answer && answer.trace && answer.trace.direct;
    if (direct && "u" in direct) return direct.u === null ? Infinity : direct.u;
  }
  return Infinity;
}

const number = (x) => (typeof x === "number" ? String(Number(x.toPrecision(3))) : "–");
const nats = (u) => (u === null || u === undefined ? "∞ (empty)" : number(u));

// Text with the gold answers in it marked.
function marked(text, gold) {
  const node = make("p");
  const words = gold.filter((g) => g.trim().length > 1).sort((a, b) => b.length - a.length);
  if (!words.length) return node.append(text), node;
  const escaped = words.map((w) => w.trim().replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const pattern = new RegExp(`(?<![\\p{L}\\p{N}])(${escaped.join("|")})(?![\\p{L}\\p{N}])`, "giu");
  let at = 0;
  for (const hit of text.matchAll(pattern)) {
    node.append(text.slice(at, hit.index), make("mark", "", hit[0]));
    at = hit.index + hit[0].length;
  }
  node.append(text.slice(at));
  return node;
}

function step(what, ...children) {
  return make("div", "step", make("div", "what", what), ...children);
}

function tokenBars(logprobs) {
  const bars = make("div", "tokens");
  bars.title = "Uncertainty of each token, -log p: " + logprobs.map((l) => number(-l)).join(", ");
  const most = Math.max(1, ...logprobs.map((l) => -l));
  for (const l of logprobs.slice(0, 48)) {
    const bar = make("i");
    bar.style.height = `${(100 * -l) / most}%`;
    bars.append(bar);
  }
  return bars;
}

function passageRow(id, score, set, question, { kept = null, detail = "" } = {}) {
  const [title, text] = set.passages[id] || [id, null];
  const name = make("span", "title");
  if (question.passages.includes(id)) name.append(make("span", "tag", "gold"));
  if (kept && kept.includes(id)) name.append(make("span", "tag kept", "kept"));
  name.append(title || id);
  if (text) name.append(make("span", "words", text.slice(0, 120)));
  const body = text === null ? make("p", "", "(the run did not keep its text)") : marked(text, question.gold);
  const head = make("summary", "", name, make("span", "score", score));
  if (detail) head.append(make("span", "score detail", detail));
  return make("li", "", make("details", "", head, body));
}

function gateLine(gate) {
  const verdict = gate.retrieve ? "retrieve" : "answer directly";
  if (typeof gate.threshold === "number") {
    return `u = ${nats(gate.value)} ${gate.retrieve ? "is above" : "is not above"} ${number(gate.threshold)}: ${verdict}`;
  }
  if (gate.name === "agreement" && gate.second) {
    const why = gate.excluded ? "they agree but hold a number" : gate.agree ? "they agree" : "they differ";
    return `direct answer and “${gate.second.text}” (read from its own passage): ${why}: ${verdict}`;
  }
  return `${gate.verdict ? `“${gate.verdict}”: ` : ""}${verdict} (${gate.name})`;
}

function searchSteps(trace, set, question) {
  const kept = trace.selected && trace.selected.ids;
  const names = { q: "Search by the question", p: "Search by the passage it wrote" };
  return trace.searches.map((search) => {
    const list = make("ol", "found");
    search.ids.forEach((id, i) => list.append(passageRow(id, number(search.scores[i]), set, question, { kept })));
    return step(names[search.path] || `Search (${search.path})`, list);
  });
}

function selectedStep(selected, set, question) {
  const list = make("ol", "found");
  const by = new Map((selected.candidates || []).map((c) => [c.id, c]));
  selected.ids.forEach((id, i) => {
    const c = by.get(id) || {};
    const detail = typeof c.s1 === "number" && typeof c.s2 === "number"
      ? `question ${number(c.s1)}, written passage ${number(c.s2)}` : "";
    list.append(passageRow(id, number((selected.scores || [])[i]), set, question, { detail }));
  });
  const of = selected.candidates ? ` of ${selected.candidates.length}` : "";
  return step(`Kept for the reader: ${selected.ids.length}${of}`, list);
}

function link(text, href) {
  const node = make("a", "", text);
  node.href = href;
  return node;
}

function traceCard(answer, run, set, question) {
  const card = make("div", `trace r${run % COLOURS}`);
  card.append(make("h4", "", make("span", "", set.runs[run])));
  if (!answer) return card.append(make("p", "note", "not asked")), card;
  if (answer.error) return card.append(make("p", "warn", answer.error)), card;
  const trace = answer.trace;
  const verdict = answer.em ? "✓ exact match" : answer.contains ? "✕ gold answer contained" : "✕ no match";
  const f1 = answer.em === null ? "" : `${verdict}, F1 ${number(answer.f1)}`;
  card.append(make("p", `final${answer.em ? "" : " wrongly"}`, answer.text || "(empty)"), make("div", "note", f1));
  if (trace.direct) {
    const direct = step(`Direct answer, u = ${nats(trace.direct.u)} nats`, make("p", "", trace.direct.text || "(empty)"));
    if (trace.direct.logprobs && trace.direct.logprobs.length) direct.append(tokenBars(trace.direct.logprobs));
    card.append(direct);
  }
  if (trace.gate) card.append(step("Decision", make("p", "", gateLine(trace.gate))));
  if (trace.pseudo_context) card.append(step("Passage it wrote", marked(trace.pseudo_context, question.gold)));
  if (searched(answer)) card.append(...searchSteps(trace, set, question));
  if (trace.selected && trace.selected.ids) card.append(selectedStep(trace.selected, set, question));
  if (trace.answer && trace.answer.raw && trace.answer.raw.trim() !== answer.text) {
    card.append(step("What the model said", make("p", "", trace.answer.raw)));
  }
  const cost = Object.entries(answer.cost).map(([name, n]) => `${name.replaceAll("_", " ").replace("llm", "LLM")} ${n}`);
  if (cost.length) card.append(make("p", "note", cost.join(" · ")));
  return card;
}

function verdictDot(answer, run, label) {
  const state = !answer ? "none" : answer.error ? "none" : answer.em ? "yes" : "no";
  const sign = !answer ? "·" : answer.error ? "!" : answer.em ? "✓" : "✕";
  const dot = make("span", `verdict ${state} r${run % COLOURS}`, sign);
  dot.title = `${label}: ${!answer ? "not asked" : answer.error || answer.text || "(empty)"}`;
  return dot;
}

const anchor = (set, question) => `${set.dataset}/${question.id}`;

function questionRow(question, set) {
  const verdicts = make("span", "verdicts", ...question.answers.map((a, i) => verdictDot(a, i, set.runs[i])));
  const row = make("details", "question", make("summary", "", make("span", "asked", question.text), verdicts));
  row.id = anchor(set, question);
  row.addEventListener("toggle", () => {
    if (!row.open || row.childElementCount > 1) return;
    const cards = question.answers.map((a, i) => traceCard(a, i, set, question));
    const gold = make("p", "gold", "Gold: ", question.gold.join(" · ") || "none", "   (", link(question.id, `#${encodeURIComponent(row.id)}`), ")");
    row.append(make("div", "inside", gold, make("div", "traces", ...cards)));
  });
  return row;
}

const right = (a) => Boolean(a && a.em);
const asked = (q) => q.answers.filter((a) => a && !a.error);
const FILTERS = {
  "all questions": () => true,
  "methods disagree": (q) => asked(q).some(right) && !asked(q).every(right),
  "all right": (q) => asked(q).length > 0 && asked(q).every(right),
  "all wrong": (q) => asked(q).length > 0 && !asked(q).some(right),
  "right answer contained, no exact match": (q) => asked(q).some((a) => a.contains && !a.em),
  "gold passage found but not kept": (q) => asked(q).some((a) => searched(a) && q.passages.some((p) =>
    a.trace.searches.some((s) => s.ids.includes(p)) && !((a.trace.selected || {}).ids || []).includes(p))),
  "error": (q) => q.answers.some((a) => a && a.error),
};

function runFilters(set) {
  const filters = {};
  set.runs.forEach((label, i) => {
    filters[`${label}: right`] = (q) => right(q.answers[i]);
    filters[`${label}: wrong`] = (q) => q.answers[i] && !q.answers[i].error && !right(q.answers[i]);
    if (set.questions.some((q) => searched(q.answers[i])) && !set.questions.every((q) => searched(q.answers[i]))) {
      filters[`${label}: retrieved`] = (q) => searched(q.answers[i]);
      filters[`${label}: answered directly`] = (q) => q.answers[i] && !q.answers[i].error && !searched(q.answers[i]);
    }
    const kinds = new Set(set.questions.map((q) => q.answers[i] && q.answers[i].need).filter(Boolean));
    for (const kind of kinds) filters[`${label}: ${kind}`] = (q) => q.answers[i] && q.answers[i].need === kind;
  });
  return filters;
}

const ORDERS = {
  "in order": null,
  "most uncertain first": (a, b) => uncertainty(b) - uncertainty(a) || 0,
  "least uncertain first": (a, b) => uncertainty(a) - uncertainty(b) || 0,
};

function choice(options, label) {
  const select = make("select", "", ...options.map((name) => make("option", "", name)));
  select.setAttribute("aria-label", label);
  return select;
}

function browse(sets, root) {
  const search = make("input");
  Object.assign(search, { type: "search", placeholder: "Search questions and answers" });
  search.setAttribute("aria-label", search.placeholder);
  const which = choice(sets.map((s) => s.dataset), "Data set");
  which.hidden = sets.length < 2;
  const order = choice(Object.keys(ORDERS), "Order");
  const slot = make("span");
  const key = make("div", "key");
  const count = make("p", "count");
  const list = make("div");
  const more = make("button", "", "Show more");
  let set, filter, filters, found = [], shown = 0;

  function grow() {
    list.append(...found.slice(shown, shown + PAGE).map((q) => questionRow(q, set)));
    shown = Math.min(found.length, shown + PAGE);
    more.hidden = shown >= found.length;
    count.textContent = `${found.length.toLocaleString("en")} of ${set.questions.length.toLocaleString("en")} questions`;
  }
  function refresh() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = set.questions.filter((q) => filters[filter.value](q) && words.every((w) => text(q).includes(w)));
    const by = ORDERS[order.value];
    if (by) found = [...found].sort(by);
    list.replaceChildren();
    shown = 0;
    grow();
  }
  function text(q) {
    q.searchable ??= [q.id, q.text, ...q.gold, ...q.answers.map((a) => (a && a.text) || "")].join("\n").toLowerCase();
    return q.searchable;
  }
  function enter() {
    set = sets[which.selectedIndex];
    filters = { ...FILTERS, ...runFilters(set) };
    filter = choice(Object.keys(filters), "Which questions");
    filter.addEventListener("change", refresh);
    slot.replaceChildren(filter);
    key.replaceChildren(...set.runs.map((label, i) => make("span", "", make("span", `verdict yes r${i % COLOURS}`), label)));
    refresh();
  }
  let waiting;
  search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(refresh, 120); });
  order.addEventListener("change", refresh);
  which.addEventListener("change", enter);
  more.addEventListener("click", grow);
  // The question that the address names, as #DATASET/ID, is drawn and opened.
  function follow() {
    const wanted = decodeURIComponent(location.hash.slice(1));
    const place = sets.findIndex((s) => s.questions.some((q) => anchor(s, q) === wanted));
    if (place < 0) return;
    which.selectedIndex = place;
    search.value = "";
    enter();
    while (!document.getElementById(wanted)) grow();
    document.getElementById(wanted).open = true;
    document.getElementById(wanted).scrollIntoView();
  }
  root.replaceChildren(make("div", "controls", search, which, slot, order), count, key, list, more);
  enter();
  follow();
  addEventListener("hashchange", follow);
}

// The threshold explorer shows the row of its table at which the slider stands.
function explore(box) {
  const rows = [...box.querySelectorAll("tbody tr")].map((row) => [...row.cells].map((cell) => cell.textContent));
  const places = box.dataset.places.split(" ");
  const slider = box.querySelector("input");
  const cursor = box.querySelector(".cursor");
  function show(at) {
    slider.value = at;
    slider.setAttribute("aria-valuetext", rows[at][0]);
    for (const node of box.querySelectorAll("[data-column]")) node.textContent = rows[at][node.dataset.column];
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, places[at]);
  }
  slider.addEventListener("input", () => show(slider.value));
  for (const button of box.querySelectorAll("button")) button.addEventListener("click", () => show(button.value));
  box.querySelector(".controls").hidden = false;
  show(slider.value);
}
document.querySelectorAll(".explorer").forEach(explore);
document.querySelectorAll("label.all input").forEach((box) => { box.checked = false; });

unpack(document.getElementById("traces").textContent.trim()).then(
  (sets) => browse(sets, document.getElementById("browser")),
  (error) => {
    document.getElementById("browser").textContent = `The questions could not be unpacked: ${error}`;
  },
);
