/* ---- filters ---------------------------------------------------------------------------------------------- */

const want = { mode: "list", bySample: false, side: "", env: "", level: "", verdict: "all", tools: "", search: "", a: 0, b: 1 };
const controls = {};
const VERDICT_FILTERS = ["all", "right", "some", "wrong", "broken"];
const CHANGES = ["all", "gained", "lost", "same", "broken"];
const isVerdict = (entry, name) => name === "all" || (name === "broken" ? entry.broken > 0 : verdictOf(entry) === name);
/* From scores, as the comparison above counts them. */
function changeOf(pair) {
  if (!pair.sides.every((side) => side && known(side.score))) return "unpaired";
  const rise = pair.sides[1].score - pair.sides[0].score;
  return rise > 0 ? "gained" : rise < 0 ? "lost" : "same";
}
const isChange = (pair, name) => name === "all" || (name === "broken" ? pair.sides.some((side) => side && side.broken) : changeOf(pair) === name);

function choice(name, label, entries) {
  const select = h("select", { "aria-label": label, onchange: () => { want[name] = select.value; refresh(); } },
    entries.map(([value, text]) => h("option", { value, selected: String(want[name]) === String(value) }, clip(text, 48))));
  controls[name] = select;
  return select;
}

function filters() {
  const sides = sidesOf(), units = unitsOf.flat(), distinct = (of) => [...new Set(units.map(of))].filter((value) => value !== "");
  const envs = distinct((unit) => unit.task.env), levels = distinct((unit) => unit.task.level).sort(), tools = [...new Set(units.flatMap((unit) => unit.episodes.flatMap((episode) => episode.calls.map(([tool]) => tool))))].sort();
  const keyed = new Set(units.map((unit) => `${unit.run}\n${unit.model}\n${unit.task.env}\n${unit.task.id}`)).size;
  const pairing = want.mode === "pairs";
  if (!pairing && want.side === "" && data.runs.length > 1 && sides.length) want.side = "0";
  const named = sides.map((side, number) => [String(number), sideName(side)]);
  controls.search = h("input", { type: "search", value: want.search, placeholder: "Search questions and answers", "aria-label": "Search questions and answers",
    oninput: () => { want.search = controls.search.value; refresh(); } });
  const modes = sides.length > 1 ? h("div", { class: "segmented", role: "group", "aria-label": "What is listed" }, [["list", "List"], ["pairs", "Side by side"]].map(([mode, text]) =>
    h("button", { type: "button", "aria-pressed": String(want.mode === mode), onclick: () => { want.mode = mode; want.verdict = "all"; filters(); refresh(); } }, text))) : null;
  controls.verdicts = (pairing ? CHANGES : VERDICT_FILTERS).map((name) => h("button", { type: "button", "data-name": name, onclick: () => { want.verdict = name; refresh(); } },
    `${name === "some" ? "partly" : name} `, h("span", { class: "count" })));
  controls.count = h("span", { class: "muted", role: "status" });
  $("filters").replaceChildren(
    h("div", { class: "toolbar" }, modes, controls.search,
      pairing ? [choice("a", "Model A", named), h("span", { class: "muted" }, "against"), choice("b", "Model B", named)] : sides.length > 1 ? choice("side", "Model", [["", "all models"], ...named]) : null,
      envs.length > 1 ? choice("env", "Environment", [["", "all environments"], ...envs.map((env) => [env, env])]) : null,
      levels.length > 1 ? choice("level", "Level", [["", "all levels"], ...levels.map((level) => [level, `level ${level}`])]) : null,
      tools.length && !pairing ? choice("tools", "Tools", [["", "tools: any use"], ["with", "with tools"], ["without", "without tools"], ...tools.map((tool) => [`=${tool}`, `used ${tool}`])]) : null,
      !pairing && keyed < units.length ? h("label", { class: "check" }, h("input", { type: "checkbox", checked: want.bySample, onchange: (event) => { want.bySample = event.target.checked; refresh(); } }), "each sample") : null,
      data.served ? h("button", { type: "button", class: "word", onclick: reload }, "Reload") : null),
    h("div", { class: "filters", role: "group", "aria-label": "Filter by result" }, controls.verdicts, controls.count));
}

const held = new Map();  // items by side: made once, since a filter changes none
function itemsHeld(side) {
  const key = `${side.run}\n${side.model}\n${want.bySample && want.mode === "list"}`;
  if (!held.has(key)) held.set(key, itemsOf(side, want.bySample && want.mode === "list"));
  return held.get(key);
}

function candidates() {
  const sides = sidesOf();
  const words = (want.search.toLowerCase().match(/"[^"]+"|\S+/g) || []).map((word) => word.replace(/^"([^"]+)"$/, "$1"));
  const fits = (task, text) => (!want.env || task.env === want.env) && (!want.level || task.level === want.level) && words.every((word) => text.includes(word));
  if (want.mode === "pairs") {
    const rows = new Map();
    [want.a, want.b].forEach((number, place) => itemsHeld(sides[number] || sides[0]).forEach((entry) => {
      const key = `${entry.task.env}\n${entry.task.id}\n${entry.task.question}`;  // the same id with another question is another task
      if (!rows.has(key)) rows.set(key, { task: entry.task, sides: [null, null], text: "" });
      rows.get(key).sides[place] = entry;
      rows.get(key).text += entry.text;
    }));
    return [...rows.values()].filter((pair) => fits(pair.task, pair.text));
  }
  const chosen = want.side === "" ? sides : [sides[want.side]].filter(Boolean);
  const uses = (entry) => !want.tools || (want.tools === "with" ? entry.calls.size > 0 : want.tools === "without" ? !entry.calls.size : entry.calls.has(want.tools.slice(1)));
  return chosen.flatMap(itemsHeld).filter((entry) => fits(entry.task, entry.text) && uses(entry));
}

function refresh(keep) {
  const all = candidates(), test = want.mode === "pairs" ? isChange : isVerdict;
  controls.verdicts.forEach((button) => {
    const name = button.dataset.name, count = all.filter((entry) => test(entry, name)).length;
    button.setAttribute("aria-pressed", String(want.verdict === name));
    button.lastChild.textContent = num(count);
    button.hidden = !count && name !== "all" && want.verdict !== name;
  });
  list(all.filter((entry) => test(entry, want.verdict)), keep === true);
}
function comparePair(pair, change) {
  const sides = sidesOf(), place = ([run, model]) => sides.findIndex((side) => side.run === run && side.model === model);
  Object.assign(want, { mode: "pairs", a: place(pair.sides[0]), b: place(pair.sides[1]), env: pair.env, verdict: change, search: "", level: "" });
  filters();
  refresh();
  $("tasks").scrollIntoView({ behavior: pace });
}
