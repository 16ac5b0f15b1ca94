/* ---- samples ---------------------------------------------------------------------------------------------- */

function samples() {
  const body = $("samples-body"), shownRuns = [...new Set([first, last])].filter((run) => run && (run.samples || []).length);
  if (!shownRuns.length) { body.append(nothing(runs.length ? "The evaluations kept no samples." : "No evaluation so far.")); return; }
  const rows = new Map();
  shownRuns.forEach((run, column) => run.samples.forEach((sample, place) => {
    const task = sample.task || {}, name = plain(task.id ?? task.question ?? place);
    if (!rows.has(name)) rows.set(name, { task, by: [] });
    rows.get(name).by[column] = sample;
  }));
  const all = [...rows.values()], two = shownRuns.length > 1, end = shownRuns.length - 1;
  const right = (row, column) => Boolean(row.by[column] && row.by[column].correct);
  const filters = [["all", () => true], [two ? `right ${shownRuns[end].name}` : "right", (row) => right(row, end)],
    [two ? `wrong ${shownRuns[end].name}` : "wrong", (row) => !right(row, end)]];
  if (two) filters.push(["gained", (row) => !right(row, 0) && right(row, 1)], ["lost", (row) => right(row, 0) && !right(row, 1)]);
  const lines = all.map((row) => sampleRow(row, shownRuns));
  const buttons = filters.map(([name, test]) => h("button", { type: "button", "aria-pressed": "false", onclick: () => apply(name) }, `${name} `, h("span", { class: "count" }, num(all.filter(test).length))));
  const apply = (name) => filters.forEach(([other, test], index) => {
    buttons[index].setAttribute("aria-pressed", String(other === name));
    if (other === name) lines.forEach((pair, place) => { pair[0].hidden = !test(all[place]); pair[1].hidden = !test(all[place]) || pair[0].dataset.open !== "yes"; });
  });
  apply("all");
  body.append(h("div", { class: "filters", role: "group", "aria-label": "Filter" }, buttons),
    h("table", { class: "samples" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "question"), h("th", { scope: "col" }, "gold"),
        shownRuns.map((run) => h("th", { scope: "col" }, plain(run.name))))),
      h("tbody", {}, lines.flat())),
    h("p", { class: "hint" }, `The first ${num(all.length)} held-out tasks, answered greedily. Open a row to read the episodes.`));
}

function sampleRow(row, columns) {
  const gold = [].concat(row.task.answers ?? []).map(plain).join(" · ");
  const body = h("tr", { class: "sample-text", hidden: true });
  const toggle = h("button", { type: "button", class: "open", "aria-expanded": "false" }, h("span", { dir: "auto" }, plain(row.task.question ?? row.task.id)));
  const head = h("tr", { class: "sample" }, h("td", {}, toggle), h("td", { "data-name": "gold" }, h("bdi", {}, gold || "–")),
    columns.map((run, column) => sampleCell(row.by[column], plain(run.name))));
  toggle.addEventListener("click", () => {
    const open = head.dataset.open !== "yes";
    head.dataset.open = open ? "yes" : "no";
    toggle.setAttribute("aria-expanded", String(open));
    body.hidden = !open;
    if (!body.children.length) {
      body.append(h("td", { colspan: 2 + columns.length }, h("div", { class: "texts" }, columns.map((run, column) =>
        h("div", {}, h("h4", {}, plain(run.name)), prose(row.by[column] ? row.by[column].text : "not among the samples kept"))))));
    }
  });
  return [head, body];
}
function sampleCell(sample, name) {
  if (!sample) return h("td", { "data-name": name }, "–");
  const correct = sample.correct === true;
  return h("td", { "data-name": name, class: correct ? "right" : "wrong" },
    h("span", { class: "sign" }, correct ? "✓ " : "✗ ", h("span", { class: "unseen" }, correct ? "right: " : "wrong: ")),
    h("bdi", {}, sample.answer === null || sample.answer === undefined ? "no answer" : plain(sample.answer)),
    known(sample.reward) ? h("span", { class: "muted" }, ` ${fixed(sample.reward)}`) : null);
}

/* ---- setup ------------------------------------------------------------------------------------------------ */

function setup() {
  const table = (title, entries, open) => entries.length ? h("details", { open }, h("summary", {}, title, h("span", { class: "muted" }, ` ${num(entries.length)}`)),
    h("table", { class: "facts" }, h("tbody", {}, entries.map(([name, value]) =>
      h("tr", {}, h("th", { scope: "row" }, name), h("td", { dir: "auto" }, plain(value))))))) : null;
  const sorted = (value) => Object.entries(value || {}).sort(([a], [b]) => a.localeCompare(b));
  const elsewhere = new Set(["settings", "versions", "name", "status"]);
  const rest = Object.entries(facts).filter(([name]) => !elsewhere.has(name));
  const tables = [table("Run and seed", rest), table("Settings", sorted(facts.settings)), table("Versions", sorted(facts.versions))].filter(Boolean);
  $("setup-body").append(h("div", { class: "tables" }, tables),
    h("p", { class: "hint" }, data.trace_bytes
      ? [h("code", {}, "traces.jsonl"), ` in the folder of this page holds ${many(data.tree_total, "tree")}, one a line (${size(data.trace_bytes)}). In Python: `,
        h("code", {}, "arpo_trainer.read_traces(path)"), "."]
      : "There is no traces.jsonl in the folder of this page."));
}

/* ---- go --------------------------------------------------------------------------------------------------- */

for (const part of [header, result, curves, treesSection, samples, setup]) {
  try {
    part();
  } catch (error) {
    document.documentElement.dataset.broken = `${part.name}: ${error.message}`;
    $("notes").append(h("p", { class: "note alarm" }, `A part of this page could not be drawn (${part.name}: ${error.message}).`));
  }
}
placed = true;
redraws.forEach((draw) => draw());
document.documentElement.dataset.ready = "yes";
