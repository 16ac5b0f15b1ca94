/* ---- header, scores, comparison, setup -------------------------------------------------------------------- */

const clip = (text, length) => { const all = [...String(text)]; return all.length > length ? all.slice(0, length - 1).join("") + "…" : all.join(""); };

function header() {
  $("name").replaceChildren(...data.runs.flatMap((run, number) => [number ? h("span", { class: "muted" }, " and ") : null, h("bdi", {}, plain(run.name))]).filter(Boolean));
  $("facts").replaceChildren(...data.runs.map((run) => {
    const status = plain(run.facts.status || "status unknown");
    const entries = [["algorithm", run.facts.algorithm && plain(run.facts.algorithm).toUpperCase()], ["samples", run.facts.samples],
      ["started", moment(run.facts.started)], ["took", duration(run.facts.seconds)]];
    return [data.runs.length > 1 ? h("li", {}, h("b", {}, h("bdi", {}, plain(run.name)))) : null,
      h("li", { class: `status status-${/^[a-z]+$/.test(status) ? status : "other"}` }, status),
      ...entries.filter(([, value]) => value).map(([name, value]) => h("li", {}, h("span", { class: "key" }, `${name} `), h("bdi", {}, plain(value))))];
  }).map((entries) => h("li", {}, h("ul", { class: "run-facts" }, entries))));
  $("notes").replaceChildren(...data.notes.map((note) => h("p", { class: "note" }, note)));
  $("foot").replaceChildren(`Written ${moment(data.written)}. ${data.served ? "Read from the run as it goes on." : "One file; it loads nothing."} `,
    h("button", { type: "button", class: "plain", onclick: showHelp }, "Keys: ?"));
}

const scoreText = (score) => score ? `${fixed(score.mean, 3)}` : "–";
const rangeText = (score) => score && known(score.low) ? `${fixed(score.low, 3)} – ${fixed(score.high, 3)}` : "";

function overview() {
  const lines = data.runs.flatMap((run) => run.scores.map((line) => ({ ...line, name: run.name })));
  if (!lines.length) { $("overview-body").replaceChildren(nothing("No episode has been stored yet.")); return; }
  const any = (test) => lines.some(test), several = data.runs.length > 1;
  const columns = [
    several ? ["run", (line) => h("bdi", {}, plain(line.name))] : null,
    ["model", (line) => h("bdi", {}, plain(line.model))],
    ["environment", (line) => h("bdi", {}, plain(line.env))],
    ["score", (line) => [h("b", {}, scoreText(line.score)), h("span", { class: "muted metric" }, ` ${plain(line.metric === "accuracy" && line.average || line.metric)}`)]],
    ["95 % interval", (line) => [whisker(line), h("span", { class: "muted range" }, rangeText(line.score))]],
    any((line) => line.published) ? ["published", publishedCell] : null,
    ["episodes", (line) => h("span", {}, num(line.episodes), known(line.planned) && line.planned > line.episodes ? h("span", { class: "muted" }, ` of ${num(line.planned)}`) : null)],
    any((line) => Object.keys(line.broken).length) ? ["broken", brokenCell] : null,
    any((line) => Object.keys(line.pass).length) ? ["pass", (line) => h("span", { class: "stack" }, Object.entries(line.pass).filter(([name]) => !/[@^]1$/.test(name)).map(([name, value]) => h("span", {}, `${name} ${fixed(value, 3)}`)))] : null,
    ["tool calls", (line) => h("span", { title: Object.entries(line.calls).map(([tool, value]) => `${tool} ${num(value)}`).join(", ") || null }, num(Object.values(line.calls).reduce((sum, value) => sum + value, 0)))],
    ["tokens", (line) => num(line.tokens)], ["seconds", (line) => num(line.seconds)],
    any((line) => known(line.cost)) ? ["cost, $", (line) => num(line.cost)] : null,
  ].filter(Boolean);
  const table = h("table", { class: "scores" }, h("thead", {}, h("tr", {}, columns.map(([name]) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, lines.map((line) => h("tr", {}, columns.map(([name, cell]) => h("td", { "data-name": name }, h("span", {}, cell(line))))))));
  $("overview-body").replaceChildren(h("div", { class: "scroll-x card", tabindex: 0, role: "group", "aria-label": "Scores" }, table),
    h("p", { class: "hint" }, "Tool calls, tokens and seconds are means of a scored episode. Broken episodes have no score: they are never counted as wrong. Intervals take the tasks as the units."),
    h("details", { class: "more" }, h("summary", {}, "Levels, metrics, published numbers and tools"), lines.map(moreOf)));
}
function whisker(line) {
  const score = line.score, width = 120, inside = (value) => 4 + Math.max(0, Math.min(1, value)) * (width - 8);
  if (!score || !known(score.mean) || score.mean > 1 || score.mean < 0) return null;
  const low = known(score.low) ? score.low : 0, high = known(score.high) ? score.high : 1;
  const published = line.published && line.published.same_model ? line.published.rows : [];
  return s("svg", { class: "score-bar", width, height: 18, role: "img", "aria-label": `${fixed(score.mean, 3)}, from ${fixed(low, 3)} to ${fixed(high, 3)}` },
    s("line", { class: "rule", x1: inside(0), x2: inside(1), y1: 9, y2: 9 }), s("line", { class: "interval", x1: inside(low), x2: inside(high), y1: 9, y2: 9 }),
    s("circle", { class: "point", cx: inside(score.mean), cy: 9, r: 4 }),
    published.map((row) => s("path", { class: "public", d: diamond(inside(row.value), 9, 4) }, s("title", {}, publishedText(row)))));
}
const sourceText = (row) => [row.source, row.note].filter(Boolean).map(plain).join(", ");
const publishedText = (row) => `${plain(row.model)} ${plain(row.method)} ${fixed(row.value, 3)}, ${sourceText(row)}`;
const MOST_PUBLISHED = 3;
function publishedCell(line) {
  const published = line.published;
  if (!published) return "–";
  const ours = (row) => ["ARPO", "AEPO", "Tool-Star"].includes(row.method);  // the papers' own methods stand first
  const best = [...published.rows].sort((a, b) => ours(b) - ours(a) || b.value - a.value), differs = published.differs.map(plain).join("; ");
  return [h("span", { class: "stack" }, best.slice(0, MOST_PUBLISHED).map((row) => h("span", { title: publishedText(row) }, h("span", { class: "public-sign", "aria-hidden": "true" }, "◆ "), fixed(row.value, 3),
    h("span", { class: "muted" }, ` ${published.same_model ? "" : `${plain(row.model)} `}${plain(row.method)}`))), best.length > MOST_PUBLISHED ? h("span", { class: "muted" }, `and ${num(best.length - MOST_PUBLISHED)} more below`) : null,
    published.reproductions.map((row) => h("span", { class: "muted", title: publishedText(row) }, `others: ${fixed(row.value, 3)} ${plain(row.method)}`))),
  differs ? h("span", { class: "muted about-public" }, `not comparable: ${differs}`) : h("span", { class: "muted about-public" }, plain(published.subset))];
}
function brokenCell(line) {
  const causes = Object.entries(line.broken), all = causes.reduce((sum, [, count]) => sum + count, 0);
  return all ? h("span", { class: "alarm-text" }, `! ${num(all)} `, h("span", { class: "muted" }, causes.map(([cause, count]) => `${cause} ${num(count)}`).join(", "))) : "0";
}
const HELPER = [["requests", "requests"], ["context", "tokens in"], ["cached", "of them cached"], ["tokens", "tokens out"], ["cost", "USD"]];
function moreOf(line) {
  const levels = Object.entries(line.levels), metrics = Object.entries(line.metrics), tools = Object.entries(line.calls), categories = Object.entries(line.categories), published = line.published ? line.published.rows : [], helped = Object.entries(line.inference_tools);
  if (![levels, categories, metrics, tools, published, helped].some((list) => list.length)) return null;
  const list = (title, entries) => entries.length ? h("div", {}, h("h4", {}, title), h("table", { class: "facts" }, h("tbody", {}, entries))) : null;
  const scored = ([name, score]) => h("tr", {}, h("th", { scope: "row" }, h("bdi", {}, plain(name) || "–")), h("td", {}, known(score) ? fixed(score, 3) : `${scoreText(score)} `, h("span", { class: "muted" }, known(score) ? "" : rangeText(score), score && known(score.tasks) ? `, ${many(score.tasks, "task")}` : "")));
  return h("div", {}, h("h3", {}, h("bdi", {}, plain(line.model)), " · ", h("bdi", {}, plain(line.env))),
    h("div", { class: "tables" }, list("Levels", levels.map(scored)), list("Categories", categories.map(scored)), list("Metrics", metrics.map(scored)),
      ...[["Published", published], ["Measured by others", line.published ? line.published.reproductions : []]].map(([title, rows]) => list(title,
        rows.map((row) => h("tr", {}, h("th", { scope: "row" }, h("bdi", {}, `${plain(row.model)} ${plain(row.method)}`)), h("td", {}, fixed(row.value, 3), h("span", { class: "muted" }, ` ${sourceText(row)}`)))))),
      list("Tools at inference time", helped.map(([tool, count]) => h("tr", {}, h("th", { scope: "row" }, plain(tool)), h("td", {}, `${num(count.used)} in ${many(count.episodes, "episode")}`, h("span", { class: "muted" }, count.failed ? `, failed ${num(count.failed)}` : ""))))),
      list("Model that helps them", HELPER.filter(([name]) => known(line.helper[name])).map(([name, label]) => h("tr", {}, h("th", { scope: "row" }, label), h("td", {}, num(line.helper[name]))))),
      list("Calls of an episode", tools.map(([tool, value]) => h("tr", {}, h("th", { scope: "row" }, h("bdi", {}, plain(tool))), h("td", {}, num(value))))
        .concat(tools.length && known(line.tool_productivity) ? [h("tr", {}, h("th", { scope: "row" }, "tool productivity"), h("td", {}, num(line.tool_productivity), h("span", { class: "muted" }, " = 100 · score · calls / (calls + 0.1), as ARPO reports it")))] : []))));
}

function comparison() {
  $("compare").hidden = $("to-compare").hidden = !data.pairs.length;
  if (!data.pairs.length) return;
  const name = ([run, model]) => h("bdi", {}, sideName({ run, model }));
  const open = (pair, change) => h("button", { type: "button", class: "plain", onclick: () => comparePair(pair, change) }, num(pair[change]));
  const titles = ["A", "B", "environment", "tasks", "score A", "score B", "B − A", "95 % interval", "p", "gained", "lost"];
  $("compare-body").replaceChildren(h("div", { class: "scroll-x card", tabindex: 0, role: "group", "aria-label": "Comparison" }, h("table", { class: "scores" },
    h("thead", {}, h("tr", {}, titles.map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", {}, data.pairs.map((pair) => h("tr", {}, [name(pair.sides[0]), name(pair.sides[1]), h("bdi", {}, plain(pair.env)), num(pair.tasks), fixed(pair.first, 3), fixed(pair.second, 3),
      h("b", {}, signed(pair.difference)), known(pair.low) ? `${signed(pair.low)} – ${signed(pair.high)}` : "–", pair.p < 0.001 ? "< 0.001" : fixed(pair.p, 3),
      open(pair, "gained"), open(pair, "lost")].map((cell, at) => h("td", { "data-name": titles[at] }, h("span", {}, cell)))))))),
  h("p", { class: "hint" }, "Paired by task, over the tasks that both have. p: sign-flip test. Click a number to list the tasks."));
}

function setup() {
  const table = (title, entries) => entries.length ? h("details", {}, h("summary", {}, title, h("span", { class: "muted" }, ` ${num(entries.length)}`)),
    h("table", { class: "facts" }, h("tbody", {}, entries.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { dir: "auto" }, plain(value))))))) : null;
  const sorted = (value) => Object.entries(value || {}).sort(([a], [b]) => a.localeCompare(b));
  const apart = new Set(["settings", "versions", "models", "environments", "name", "status"]);
  $("setup-body").replaceChildren(...data.runs.flatMap((run) => [
    data.runs.length > 1 ? h("h3", {}, h("bdi", {}, plain(run.name))) : null,
    h("div", { class: "tables" }, table("Run", Object.entries(run.facts).filter(([name]) => !apart.has(name))), table("Models", Object.entries(run.facts.models || {})),
      table("Environments", Object.entries(run.facts.environments || {})), table("Settings", sorted(run.facts.settings)), table("Versions", sorted(run.facts.versions)))]).filter(Boolean));
}
