/* Draws the run report from the JSON in #data. No libraries, no network. All text of models, tools and tasks is put
   in as text nodes, never as markup. Order: page tools, formats, header, result, curves, trees, samples, setup. */
"use strict";
(() => {

/* ---- page tools ------------------------------------------------------------------------------------------- */

const $ = (id) => document.getElementById(id);
const NS = $("defs").namespaceURI;
const data = JSON.parse($("data").textContent);
const facts = data.facts;

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => fill(document.createElementNS(NS, tag), attributes, children);
const wide = (node) => Math.max(1, Math.floor(node.clientWidth));

const pace = matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth";

/* Pictures are drawn as wide as their place is: once it is on the page, and again when the window changes. */
const redraws = [];
let pending = 0;
let placed = false;
function picture(draw) { redraws.push(draw); if (placed) draw(); }
addEventListener("resize", () => {
  cancelAnimationFrame(pending);
  pending = requestAnimationFrame(() => redraws.forEach((draw) => draw()));
});
const PAPER = "700px";
addEventListener("beforeprint", () => {
  document.querySelectorAll("#setup details").forEach((details) => { details.open = true; });
  document.body.style.maxWidth = PAPER;
  redraws.forEach((draw) => draw());
});
addEventListener("afterprint", () => {
  document.body.style.maxWidth = "";
  redraws.forEach((draw) => draw());
});

/* ---- formats ---------------------------------------------------------------------------------------------- */

const known = (value) => typeof value === "number" && Number.isFinite(value);
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

function num(value, digits = 3) {
  if (!known(value)) return "–";
  const size = Math.abs(value);
  let text;
  if (Number.isInteger(value) || size >= 1000) text = Math.round(value).toLocaleString("en");
  else if (size !== 0 && size < 0.001) text = value.toExponential(1);
  else text = String(Number(value.toPrecision(digits)));
  return text.replace("-", "−");
}
const fixed = (value, digits = 2) => known(value) ? value.toFixed(digits).replace("-", "−") : "–";
const signed = (value, digits = 3) => known(value) ? (value < 0 ? "−" : "+") + Math.abs(value).toFixed(digits) : "–";
const percent = (value) => known(value) ? `${Number((100 * value).toFixed(1))} %` : "–";
const many = (count, word, plural = `${word}s`) => `${num(count)} ${count === 1 ? word : plural}`;

function duration(seconds) {
  if (!known(seconds)) return null;
  const whole = Math.round(seconds), hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
  if (whole < 60) return `${num(seconds)} s`;
  return hours ? `${hours} h ${minutes} min` : `${minutes} min ${whole % 60} s`;
}
function moment(iso) {
  const match = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d)/.exec(iso || "");
  return match ? `${match[1]} ${match[2]}${/(Z|\+00:00)$/.test(iso) ? " UTC" : ""}` : iso;
}
function size(bytes) {
  const mega = bytes / 1e6;
  return mega >= 1 ? `${num(mega, 2)} MB` : `${Math.max(1, Math.round(bytes / 1000))} kB`;
}
const plain = (value) => typeof value === "string" ? value : value === null || value === undefined ? "–"
  : known(value) ? String(value) : JSON.stringify(value);

/* ---- header ----------------------------------------------------------------------------------------------- */

function header() {
  $("name").textContent = plain(facts.name);
  const status = facts.status || "status unknown";
  const entries = [
    ["environment", facts.env && (facts.env.id || plain(facts.env))],
    ["model", facts.model],
    ["algorithm", facts.algorithm && String(facts.algorithm).toUpperCase()],
    ["started", moment(facts.started)],
    facts.status === "running" ? ["so far", duration((Date.parse(data.written) - Date.parse(facts.started)) / 1000)]
      : ["took", duration(facts.seconds)],
    ["sandbox", facts.isolation],
  ];
  $("facts").append(
    h("li", { class: `status status-${/^[a-z]+$/.test(status) ? status : "other"}` }, status),
    ...entries.filter(([, value]) => value).map(([name, value]) =>
      h("li", {}, h("span", { class: "key" }, name, " "), h("bdi", {}, plain(value)))),
  );
  const notes = data.notes.length ? [data.notes.join(" ")] : [];
  if (facts.status === "running") {
    notes.unshift(`The run was still going when this page was written (${moment(data.written)}).`);
  }
  if (notes.length) $("notes").append(...notes.map((note) => h("p", { class: "note" }, note)));
  $("foot").textContent = `Written ${moment(data.written)}. One file; it loads nothing.`;
}
const nothing = (text) => h("p", { class: "empty" }, text);

/* ---- result ----------------------------------------------------------------------------------------------- */

const runs = data.evaluations;
const first = runs[0];
const last = runs[runs.length - 1];

function wilson(share, n) {
  const z = 1.959964, z2 = z * z, centre = (share + z2 / (2 * n)) / (1 + z2 / n);
  const half = (z * Math.sqrt((share * (1 - share)) / n + z2 / (4 * n * n))) / (1 + z2 / n);
  return [Math.max(0, centre - half), Math.min(1, centre + half)];
}

function result() {
  const body = $("result-body");
  if (!runs.length) {
    body.append(nothing("No evaluation so far, so there is no before and after."));
  } else {
    const cards = [measure("Accuracy", "accuracy", percent), measure("Reward", "reward", (v) => fixed(v)), levels()];
    body.append(h("div", { class: "cards" }, cards));
  }
  body.append(tally());
}

function measure(title, key, format) {
  if (!known(last[key])) return null;
  const low = `${key}_low`, high = `${key}_high`;
  const moved = runs.length > 1 && known(first[key]);
  const interval = (run) => known(run[low]) && known(run[high]);
  const broken = known(last.invalid) && last.invalid ? `, ${num(last.invalid)} more not scored` : "";
  let said = "";
  if (moved) {
    const rise = last[key] - first[key];
    said = key === "accuracy" ? `${signed(100 * rise, 1)} points` : signed(rise, 2);
    if (interval(first) && interval(last)) {
      const apart = first[high] < last[low] || last[high] < first[low];
      said += apart ? "; the intervals do not overlap" : "; the intervals overlap";
    }
    said += "; ";
  }
  const plot = h("div", { class: "plot" });
  const card = h("figure", { class: "card" },
    h("figcaption", {}, `${title} on held-out tasks`),
    h("p", { class: "big" }, moved ? [h("span", { class: "was" }, format(first[key])), h("span", { class: "arrow" }, " → ")] : null,
      h("span", {}, format(last[key]))),
    h("p", { class: "sub" }, `${said}n\u00a0=\u00a0${plain(last.n)}${broken}`), plot);
  const rows = runs.length > 6 ? [first, ...runs.slice(-5)] : runs;
  picture(() => plot.replaceChildren(whiskers(rows.map((run) => ({
    label: `${run.name ?? "?"}`, value: run[key], low: run[low], high: run[high], full: run === last,
  })), wide(plot), key === "accuracy" ? [0, 1] : null, format, `${title}, with 95 % intervals`)));
  return card;
}

function whiskers(rows, width, domain, format, label) {
  const values = rows.flatMap((row) => [row.value, row.low, row.high]).filter(known);
  const [low, high] = domain || [Math.min(0, ...values), Math.max(1, ...values)];
  const left = 66, right = 14, step = 26, height = rows.length * step + 22;
  const x = (value) => left + ((value - low) / (high - low || 1)) * (width - left - right);
  const marks = ticks(low, high, 4);
  const said = rows.map((row) => `${row.label} ${format(row.value)}, from ${format(row.low)} to ${format(row.high)}`);
  return s("svg", { width, height, role: "img", "aria-label": `${label}: ${said.join("; ")}` },
    marks.map((mark) => [
      s("line", { class: mark === 0 ? "axis" : "rule", x1: x(mark), x2: x(mark), y1: 2, y2: height - 18 }),
      s("text", { class: "tick", x: x(mark), y: height - 5, "text-anchor": "middle" }, domain ? num(100 * mark) : num(mark)),
    ]),
    rows.map((row, index) => {
      const y = index * step + 15;
      return s("g", { class: row.full ? "whisker full" : "whisker" },
        s("title", {}, said[index]),
        s("text", { class: "row-label", x: 0, y: y + 4 }, clip(row.label, 9)),
        known(row.low) && known(row.high) ? [
          s("line", { x1: x(row.low), x2: x(row.high), y1: y, y2: y }),
          s("line", { x1: x(row.low), x2: x(row.low), y1: y - 5, y2: y + 5 }),
          s("line", { x1: x(row.high), x2: x(row.high), y1: y - 5, y2: y + 5 })] : null,
        known(row.value) ? s("circle", { cx: x(row.value), cy: y, r: 5 }) : null);
    }));
}

function levels() {
  const names = Object.keys((last && last.by_level) || {}).sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  if (names.length < 2) return null;
  const plot = h("div", { class: "plot" });
  const step = 26, left = 66, right = 14;
  picture(() => {
    const width = wide(plot), height = names.length * step + 22, x = (value) => left + value * (width - left - right);
    plot.replaceChildren(s("svg", { width, height, role: "img", "aria-label": "Accuracy by level: " + names.map((name) =>
      `${name || "none"}: ${percent(of(first, name).accuracy)} to ${percent(of(last, name).accuracy)}`).join("; ") },
    [0, 0.25, 0.5, 0.75, 1].map((mark) => [
      s("line", { class: mark ? "rule" : "axis", x1: x(mark), x2: x(mark), y1: 2, y2: height - 18 }),
      s("text", { class: "tick", x: x(mark), y: height - 5, "text-anchor": "middle" }, num(100 * mark))]),
    names.map((name, index) => {
      const y = index * step + 15, was = of(first, name), is = of(last, name);
      const bounds = known(is.accuracy) && is.n ? wilson(is.accuracy, is.n) : null;
      return s("g", { class: "level" },
        s("title", {}, `level ${name}: ${percent(was.accuracy)} → ${percent(is.accuracy)}, n = ${plain(is.n)}`),
        s("text", { class: "row-label", x: 0, y: y + 4 }, clip(name || "none", 9)),
        bounds ? s("line", { class: "faint", x1: x(bounds[0]), x2: x(bounds[1]), y1: y, y2: y }) : null,
        runs.length > 1 && known(was.accuracy) && known(is.accuracy) ? [
          s("line", { class: "move", x1: x(was.accuracy), x2: x(is.accuracy), y1: y, y2: y }),
          s("circle", { class: "from", cx: x(was.accuracy), cy: y, r: 4.5 })] : null,
        known(is.accuracy) ? s("circle", { class: "to", cx: x(is.accuracy), cy: y, r: 5 }) : null);
    })));
  });
  return h("figure", { class: "card" },
    h("figcaption", {}, "Accuracy by level, in %"),
    h("p", { class: "sub" }, runs.length > 1 ? [h("span", { class: "dot from" }), ` ${first.name ?? "first"}  `] : null,
      h("span", { class: "dot to" }), ` ${last.name ?? "last"}, with 95 % interval`), plot);
}
const of = (run, level) => ((run && run.by_level) || {})[level] || {};

function tally() {
  const rows = data.metrics, total = (key) => rows.map((row) => row[key]).filter(known).reduce((a, b) => a + b, 0);
  const started = total("roots") + total("branches") + total("top_ups");
  const unique = total("tokens_unique"), copied = total("tokens_copied"), invalid = total("invalid");
  const calls = runs.length && known(last.tool_calls)
    ? `${runs.length > 1 && known(first.tool_calls) ? `${fixed(first.tool_calls)} → ` : ""}${fixed(last.tool_calls)}` : null;
  const entries = [
    ["training steps", rows.length ? num(rows.length) : null],
    ["trajectories", started ? num(started) : null],
    ["from branches", started ? percent(total("branches") / started) : null],
    ["tokens sampled once", unique ? num(unique) : null],
    ["sharing factor", unique ? `×${fixed(copied / unique)}` : null],
    ["tool calls a task", calls],
    ["could not be scored", rows.length ? num(invalid) : null],
  ];
  return h("dl", { class: "tally" }, entries.filter(([, value]) => value !== null).map(([name, value]) =>
    h("div", { class: name === "could not be scored" && invalid ? "alarm" : null }, h("dt", {}, name), h("dd", {}, value))));
}

/* ---- curves ----------------------------------------------------------------------------------------------- */

const charts = [];
let hovered = null;
function hover(index) { hovered = index; charts.forEach((chart) => chart.mark()); }

function ticks(low, high, count) {
  const raw = (high - low || 1) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((value) => value >= raw * 0.999);
  const marks = [];
  for (let k = Math.ceil(low / step - 1e-6); k * step <= high + step * 1e-6; k += 1) marks.push(Number((k * step).toPrecision(12)));
  return marks;
}
/* The least of 1, 2, 5, 10, 20, 50, ... that is not below `value`. */
function round125(value) {
  const power = 10 ** Math.max(0, Math.floor(Math.log10(Math.max(1, value))));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= value);
}
const clip = (text, length) => { const all = [...String(text)]; return all.length > length ? all.slice(0, length - 1).join("") + "…" : all.join(""); };

function curves() {
  const body = $("curves-body");
  if (!data.metrics.length) { body.append(nothing("No training step has been logged yet.")); return; }
  const has = (key) => data.metrics.some((row) => known(row[key]));
  const host = h("div", { class: "grid" });
  const add = (spec) => {
    spec.series = spec.series.filter((series) => has(series.key));
    if (spec.series.length) host.append(chart(spec));
  };
  body.append(h("p", { class: "hint" }, "Hover, or focus a chart and use the arrow keys, to read a step in all of them." + (trees.length ? " Click to see that step’s trees." : "")), host);
  add({ title: "Reward", note: "mean; band: one standard deviation", zero: true, series: [
    { key: "reward", name: "reward", class: "a", band: "reward_std" }, { key: "accuracy", name: "accuracy", class: "b" }] });
  add({ title: "Tool calls", note: "mean a trajectory", zero: true, series: [{ key: "tool_calls", name: "tool calls", class: "a" }] });
  add({ title: "Entropy", note: "mean nats a token", zero: true, series: [
    { key: "entropy", name: "all", class: "a" }, { key: "entropy_after_tool", name: "after a tool result", class: "b" },
    { key: "entropy_first", name: "first turn", class: "c" }] });
  add({ title: "Trajectories", note: "by how they began", stacked: true, series: [
    { key: "roots", name: "roots", class: "roots" }, { key: "branches", name: "branches", class: "branches" },
    { key: "top_ups", name: "top-ups", class: "topups" }] });
  add({ title: "Where the time went", note: "seconds a step; tools run while the model generates", stacked: true, line: "seconds_step", series: [
    { key: "seconds_generate", name: "generate", class: "generate" }, { key: "seconds_tools", name: "tools", class: "tools" },
    { key: "seconds_score", name: "score", class: "score" }, { key: "seconds_update", name: "update", class: "update" }] });
  host.append(anyMetric());
  body.append(numbers());
}

const shown = new Set(["step", "reward", "reward_std", "accuracy", "tool_calls", "entropy", "entropy_after_tool", "entropy_first",
  "roots", "branches", "top_ups", "seconds_generate", "seconds_tools", "seconds_score", "seconds_update"]);
function metricKeys() {
  return [...new Set(data.metrics.flatMap((row) => Object.keys(row).filter((key) => known(row[key]))))];
}

function anyMetric() {
  const keys = metricKeys().filter((key) => !shown.has(key)).sort();
  if (!keys.length) return null;
  const select = h("select", { "aria-label": "Which measurement" }, keys.map((key) => h("option", { value: key }, key.replaceAll("_", " "))));
  select.value = ["loss", "grad_norm"].find((key) => keys.includes(key)) || keys[0];
  const spec = { title: "", control: select, note: "", series: [{ key: select.value, name: select.value, class: "a" }] };
  const figure = chart(spec);
  select.addEventListener("change", () => {
    spec.series = [{ key: select.value, name: select.value.replaceAll("_", " "), class: "a" }];
    figure.redraw();
  });
  return figure;
}

function chart(spec) {
  const rows = data.metrics, count = rows.length;
  const plot = h("div", { class: "plot", tabindex: 0, role: "group" });
  const legend = h("p", { class: "legend", "aria-live": "polite" });
  const figure = h("figure", { class: "card chart" },
    h("figcaption", {}, spec.control || spec.title, " ", h("span", { class: "muted" }, spec.note)), legend, plot);
  let x, cursor;

  function extent() {
    const values = rows.flatMap((row) => spec.stacked
      ? [spec.series.reduce((sum, series) => sum + (known(row[series.key]) ? Math.max(0, row[series.key]) : 0), 0), row[spec.line]]
      : spec.series.flatMap((series) => {
        const value = row[series.key], spread = known(row[series.band]) ? row[series.band] : 0;
        return known(value) ? [value - spread, value + spread] : [];
      })).filter(known);
    let low = Math.min(...values), high = Math.max(...values);
    if (spec.zero || spec.stacked) { low = Math.min(0, low); high = Math.max(0, high); }
    if (low === high) { low -= spec.zero || spec.stacked ? 0 : Math.abs(low) * 0.1 || 1; high += Math.abs(high) * 0.1 || 1; }
    return [low, high];
  }

  function draw() {
    const width = wide(plot), height = 178, right = 12, top = 8, bottom = 22;
    const [low, high] = extent(), marks = ticks(low, high, 4);
    const left = 14 + 6.4 * Math.max(3, ...marks.map((mark) => num(mark).length));
    const inner = width - left - right, slot = inner / count;
    x = (index) => spec.stacked || count === 1 ? left + (index + 0.5) * slot : left + (index / (count - 1)) * inner;
    const y = (value) => top + (1 - (value - low) / (high - low)) * (height - top - bottom);
    const every = round125(count / Math.max(2, inner / 46));
    const label = (row, index) => row.step ?? index + 1;
    cursor = s("line", { class: "cursor", y1: top, y2: height - bottom, visibility: "hidden" });
    const svg = s("svg", { width, height, "aria-hidden": "true" },
      marks.map((mark) => [
        s("line", { class: mark === 0 ? "axis" : "rule", x1: left, x2: width - right, y1: y(mark), y2: y(mark) }),
        s("text", { class: "tick", x: left - 7, y: y(mark) + 4, "text-anchor": "end" }, num(mark))]),
      rows.map((row, index) => label(row, index) % every === 0
        ? s("text", { class: "tick", x: x(index), y: height - 5, "text-anchor": "middle" }, num(label(row, index))) : null),
      spec.stacked ? bars(y, slot) : spec.series.map((series) => curve(series, y)), cursor);
    plot.replaceChildren(svg);
    mark();
  }

  function bars(y, slot) {
    const thick = Math.max(1, Math.min(44, slot * 0.72));
    return rows.map((row, index) => {
      let base = 0;
      const parts = spec.series.map((series) => {
        const value = row[series.key];
        if (!known(value) || value <= 0) return null;
        const from = base;
        base += value;
        const gap = count < 80 ? 0.75 : 0;
        return s("rect", { class: `fill-${series.class}`, x: x(index) - thick / 2, width: thick, y: y(base),
          height: Math.max(0.5, y(from) - y(base) - (from ? gap : 0)) });
      });
      const wall = spec.line && known(row[spec.line])
        ? s("line", { class: "wall", x1: x(index) - thick / 2 - 2, x2: x(index) + thick / 2 + 2, y1: y(row[spec.line]), y2: y(row[spec.line]) }) : null;
      return [parts, wall];
    });
  }

  function curve(series, y) {
    let path = "", up = true;
    const dots = [], band = [];
    let upper = [], lower = [];
    const close = () => { if (upper.length > 1) band.push(`M${upper.join("L")}L${lower.reverse().join("L")}Z`); upper = []; lower = []; };
    rows.forEach((row, index) => {
      const value = row[series.key];
      if (!known(value)) { up = true; close(); return; }
      path += `${up ? "M" : "L"}${x(index).toFixed(1)},${y(value).toFixed(1)}`;
      up = false;
      if (count <= 40) dots.push(s("circle", { class: `dot-${series.class}`, cx: x(index), cy: y(value), r: 2.75 }));
      if (known(row[series.band])) {
        upper.push(`${x(index).toFixed(1)},${y(value + row[series.band]).toFixed(1)}`);
        lower.push(`${x(index).toFixed(1)},${y(value - row[series.band]).toFixed(1)}`);
      } else close();
    });
    close();
    return [band.length ? s("path", { class: `band-${series.class}`, d: band.join("") }) : null,
      s("path", { class: `line-${series.class}`, d: path }), dots];
  }

  function mark() {
    const index = hovered === null ? count - 1 : hovered, row = rows[index];
    if (cursor) {
      cursor.setAttribute("visibility", hovered === null ? "hidden" : "visible");
      cursor.setAttribute("x1", x(index));
      cursor.setAttribute("x2", x(index));
    }
    const items = spec.series.map((series) => h("span", { class: "entry" },
      h("span", { class: `swatch ${spec.stacked ? "fill" : "line"}-${series.class}` }), `${series.name} `,
      h("b", {}, num(row[series.key])), series.band && known(row[series.band]) ? ` ± ${num(row[series.band], 2)}` : null));
    if (spec.line && known(row[spec.line])) {
      items.push(h("span", { class: "entry" }, h("span", { class: "swatch wall" }), "whole step ", h("b", {}, num(row[spec.line]))));
    }
    legend.replaceChildren(h("span", { class: "entry step" }, `step ${num(row.step ?? index + 1)}`), ...items);
    const read = [...legend.children].map((entry) => entry.textContent).join(", ");
    plot.setAttribute("aria-label", `${spec.title || spec.series[0].name}, chart; ${read}`);
  }

  const nearest = (event) => {
    const place = event.clientX - plot.getBoundingClientRect().left;
    let best = 0;
    for (let index = 1; index < count; index += 1) if (Math.abs(x(index) - place) < Math.abs(x(best) - place)) best = index;
    return best;
  };
  plot.addEventListener("pointermove", (event) => hover(nearest(event)));
  plot.addEventListener("pointerleave", () => hover(null));
  plot.addEventListener("blur", () => hover(null));
  plot.addEventListener("click", (event) => showStep(rows[nearest(event)].step));
  plot.addEventListener("keydown", (event) => {
    const now = hovered === null ? count - 1 : hovered;
    const to = { ArrowLeft: now - 1, ArrowRight: hovered === null ? 0 : now + 1, Home: 0, End: count - 1 }[event.key];
    if (to !== undefined) { hover(Math.max(0, Math.min(count - 1, to))); event.preventDefault(); }
    if (event.key === "Enter") showStep(rows[now].step);
    if (event.key === "Escape") hover(null);
  });
  charts.push({ mark });
  figure.redraw = draw;
  picture(draw);
  return figure;
}

function numbers() {
  const keys = metricKeys();
  const rank = (key) => key === "step" ? 0 : 1;
  keys.sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
  const details = h("details", { class: "more" }, h("summary", {}, "All numbers, step by step"));
  details.addEventListener("toggle", () => {
    if (details.children.length > 1) return;
    details.append(h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "All numbers" }, h("table", { class: "numbers" },
      h("thead", {}, h("tr", {}, keys.map((key) => h("th", { scope: "col" }, key.replaceAll("_", " "))))),
      h("tbody", {}, data.metrics.map((row) => h("tr", {}, keys.map((key) => h("td", {}, num(row[key])))))))));
  });
  return details;
}

/* ---- trees: layout ---------------------------------------------------------------------------------------- */

const ROW = 42, BAR = 24, TOP = 20, PROMPT = 20, LEAST = { model: 30, environment: 34 }, GAP = 10, FORK = 30;

/* Adds to a tree what drawing needs: children, trajectories through each span, turns, rows. */
function prepare(tree) {
  if (tree.items) return tree;
  tree.spans.forEach((span, index) => Object.assign(span, { index, children: [], through: [], ends: [], turn: 0 }));
  tree.ends = [];
  tree.spans.forEach((span) => {
    const parent = tree.spans[span.parent];
    if (parent) parent.children.push(span);
    span.turn = (parent ? parent.turn : 0) + (span.kind === "model" ? 1 : 0);
  });
  tree.trajectories.forEach((trajectory, number) => {
    trajectory.number = number;
    trajectory.path = [];
    for (let span = tree.spans[trajectory.leaf]; span; span = tree.spans[span.parent]) { span.through.push(number); trajectory.path.unshift(span); }
    (tree.spans[trajectory.leaf] || tree).ends.push(trajectory);
  });
  const order = (item) => item.path ? item.number : Math.min(...item.through, tree.trajectories.length + item.index);
  const arrange = (children, ends) => [...children, ...ends].sort((a, b) => order(a) - order(b));
  tree.spans.forEach((span) => { span.items = arrange(span.children, span.ends); });
  tree.items = arrange(tree.spans.filter((span) => !tree.spans[span.parent]), tree.ends);
  tree.rows = [];
  const place = (item) => {
    item.row = tree.rows.length;
    if (item.path) { tree.rows.push(item); return; }
    if (!item.items.length) tree.rows.push(null);
    item.items.forEach(place);
  };
  tree.items.forEach(place);
  const entropies = tree.spans.flatMap((span) => span.entropies || []).filter(known).sort((a, b) => a - b);
  tree.most = Math.max(100, entropies[Math.floor(0.98 * entropies.length)] || 0) / 1000;
  return tree;
}

/* Sets x and w of the spans so that the longest path fits into `width`, if it can, and returns [width, scale]. */
function spread(tree, width) {
  const reach = (scale) => {
    let most = 0;
    tree.spans.forEach((span) => {
      const parent = tree.spans[span.parent];
      span.w = Math.max(LEAST[span.kind] || 30, span.n * scale);
      span.x = parent ? parent.x + parent.w + (parent.decision || parent.items.length > 1 ? FORK : GAP) : PROMPT + 16;
      most = Math.max(most, span.x + span.w);
    });
    return most + 22;
  };
  let low = 0.05, high = 5;
  if (reach(high) <= width) return [width, high];
  for (let round = 0; round < 24; round += 1) {
    const middle = (low + high) / 2;
    if (reach(middle) <= width) low = middle; else high = middle;
  }
  return [Math.max(width, reach(low)), low];
}

/* ---- trees: drawing --------------------------------------------------------------------------------------- */

const trees = data.trees;
const view = { tree: 0, kind: "prompt", at: 0 };
const parts = {};

function treesSection() {
  const body = $("trees-body");
  if (!trees.length) { body.append(nothing("No rollout trees have been written yet.")); return; }
  const steps = [...new Set(trees.map((tree) => tree.step))];
  parts.step = h("select", { "aria-label": "Step", onchange: () => showStep(steps[parts.step.selectedIndex], true) },
    steps.map((step) => h("option", {}, `step ${plain(step)}`)));
  parts.steps = steps;
  parts.group = h("select", { "aria-label": "Prompt", class: "prompt-select", onchange: () => show(Number(parts.group.value)) });
  parts.count = h("span", { class: "muted", "aria-live": "polite" });
  parts.head = h("div", { class: "tree-head" });
  parts.box = h("div", { class: "tree-box", tabindex: 0, role: "group" });
  parts.leaves = h("ol", { class: "leaves", "aria-label": "Trajectories" });
  parts.key = h("ul", { class: "key-list" });
  parts.panel = h("aside", { class: "panel", "aria-label": "Details", tabindex: -1 });
  const toolbar = h("div", { class: "toolbar", role: "group", "aria-label": "Choose a tree" }, parts.step, parts.group,
    h("button", { type: "button", "aria-label": "Previous tree", onclick: () => show(view.tree - 1) }, "‹"),
    h("button", { type: "button", "aria-label": "Next tree", onclick: () => show(view.tree + 1) }, "›"), parts.count);
  if (data.tree_total > trees.length) {
    body.append(h("p", { class: "note" }, `${num(trees.length)} of ${num(data.tree_total)} trees are in this page, spread evenly over ${num(data.tree_steps)} steps; ` +
      "the others are left out to keep it small. All are in traces.jsonl."));
  }
  body.append(toolbar, parts.head, h("div", { class: "tree-layout" },
    h("div", { class: "tree-main" }, h("div", { class: "tree-frame" }, parts.box, parts.leaves), parts.key), parts.panel));
  $("trees").addEventListener("keydown", (event) => {
    if (!event.target.closest("select, .panel, .node")) arrows(event);
  });
  addEventListener("keydown", (event) => {
    const place = $("trees").getBoundingClientRect();
    if (event.target === document.body && place.top < innerHeight / 2 && place.bottom > innerHeight / 3) arrows(event);
  });
  addEventListener("hashchange", fromAddress);
  picture(drawTree);
  if (!fromAddress()) show(liveliest());
}
function arrows(event) {
  const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!way || event.altKey || event.ctrlKey || event.metaKey) return;
  const lost = parts.leaves.contains(document.activeElement);
  show(view.tree + way);
  if (lost) parts.box.focus({ preventScroll: true });
  event.preventDefault();
}

/* The tree to begin with: of the last step, the one that branched most. */
function liveliest() {
  const final = trees[trees.length - 1].step, grown = (tree) => tree.trajectories.filter((t) => t.origin === "branch").length;
  return trees.reduce((best, tree, index) => tree.step === final && (best < 0 || grown(tree) > grown(trees[best])) ? index : best, -1);
}
function fromAddress() {
  const match = /^#tree=(\d+)(?:&(leaf|span)=(\d+))?$/.exec(location.hash);
  if (!match || !trees[match[1]]) return false;
  show(Number(match[1]));
  if (match[2]) select(match[2], Number(match[3]));
  $("trees").scrollIntoView();
  return true;
}
function showStep(step, stay) {
  if (!trees.length) return;
  let best = 0;
  trees.forEach((tree, index) => { if (Math.abs(tree.step - step) < Math.abs(trees[best].step - step)) best = index; });
  show(best);
  if (!stay) $("trees").scrollIntoView({ behavior: pace });
}

function show(index) {
  view.tree = (index + trees.length) % trees.length;
  const tree = prepare(trees[view.tree]);
  parts.step.selectedIndex = parts.steps.indexOf(tree.step);
  parts.group.replaceChildren(...trees.flatMap((other, place) => other.step === tree.step
    ? [h("option", { value: place, selected: place === view.tree }, `${plain(other.group ?? place)}: ${clip(other.task.question ?? other.task.id ?? "prompt", 60)}`)] : []));
  parts.count.textContent = `tree ${view.tree + 1} of ${trees.length}`;
  parts.head.replaceChildren(...treeHead(tree));
  parts.key.replaceChildren(...legendList(tree));
  view.focus = null;
  view.kind = "prompt";
  drawTree();
  drawPanel();
}

function treeHead(tree) {
  const all = tree.trajectories, from = (origin) => all.filter((trajectory) => trajectory.origin === origin).length;
  const rewards = all.map((trajectory) => trajectory.reward).filter(known);
  const points = tree.spans.filter((span) => span.decision && span.decision.branches > 0).length;
  const decided = tree.spans.filter((span) => span.decision).length;
  const deviation = rewards.length ? Math.sqrt(mean(rewards.map((reward) => (reward - mean(rewards)) ** 2))) : null;
  const origins = ["root", "branch", "top-up"].filter(from)
    .map((origin) => many(from(origin), origin, origin === "branch" ? "branches" : undefined)).join(", ");
  const stats = [
    `${many(all.length, "trajectory", "trajectories")}: ${origins}`,
    decided ? `branched at ${num(points)} of ${many(decided, "tool result")}` : null,
    `${num(tree.unique)} tokens sampled once, ${num(tree.copied)} if copied out: sharing ×${fixed(tree.copied / Math.max(1, tree.unique))}`,
    rewards.length ? `reward ${fixed(mean(rewards))} ± ${fixed(deviation)}` : "no reward",
  ];
  const answers = [].concat(tree.task.answers ?? []);
  return [
    h("p", { class: "question", dir: "auto" }, plain(tree.task.question ?? tree.task.id ?? "(no question recorded)")),
    h("p", { class: "gold" }, "gold ", answers.length ? answers.map((answer) => [h("bdi", { class: "chip" }, plain(answer)), " "]) : "–",
      tree.task.level ? h("span", { class: "muted" }, " level ", h("bdi", {}, plain(tree.task.level))) : null),
    h("p", { class: "stats" }, stats.filter(Boolean).map((text) => h("span", {}, text))),
  ];
}

const middle = (row) => TOP + row * ROW + ROW / 2;
const hexagon = (x, y, w) => `M${x + 7},${y}H${x + w - 7}L${x + w},${y + BAR / 2}L${x + w - 7},${y + BAR}H${x + 7}L${x},${y + BAR / 2}Z`;
const pebble = (x, y, w) => `M${x + 8},${y}h${w - 16}a8,8 0 0 1 8,8v${BAR - 16}a8,8 0 0 1 -8,8h${16 - w}a8,8 0 0 1 -8,-8v${16 - BAR}a8,8 0 0 1 8,-8Z`;
const diamond = (x, y, r) => `M${x - r},${y}L${x},${y - r}L${x + r},${y}L${x},${y + r}Z`;

function profile(values, x, y, w, height, most) {
  const usable = values.map((value) => known(value) ? value / 1000 : 0);
  if (!usable.length) return "";
  const step = w / usable.length;
  const points = usable.map((value, index) => {
    const level = (y + height - Math.min(1, value / most) * height).toFixed(1);
    return `L${(x + index * step).toFixed(1)},${level}H${(x + (index + 1) * step).toFixed(1)}`;
  });
  return `M${x.toFixed(1)},${y + height}${points.join("")}V${y + height}Z`;
}

function drawTree() {
  const tree = prepare(trees[view.tree]);
  const [width, scale] = spread(tree, Math.max(wide(parts.box), 440));
  const height = TOP + tree.rows.length * ROW + 24;
  const on = selection(tree);
  const links = [], nodes = [], marks = [];
  const lit = (span) => on === null || on.has(span.index);
  const firstRow = tree.items.length ? tree.items[0].row : 0;
  const finalRow = tree.items.length ? tree.items[tree.items.length - 1].row : 0;

  tree.items.forEach((item) => {
    const to = item.path ? PROMPT + 20 : item.x;
    links.push(s("path", { class: item.path || lit(item) ? "link" : "link dim", d: `M${PROMPT},${middle(item.row)}H${to}` }));
    if (item.path) marks.push(ending(item, PROMPT + 26, width));
  });
  const promptTall = middle(finalRow) - middle(firstRow) + BAR;
  nodes.push(s("g", node("prompt", 0, `Prompt, ${num(tree.prompt_tokens)} tokens`, `prompt${view.kind === "prompt" ? " chosen" : ""}`),
    s("title", {}, `prompt, ${num(tree.prompt_tokens)} tokens`),
    s("rect", { x: 1, y: middle(firstRow) - BAR / 2, width: PROMPT - 2, height: promptTall, rx: 3 }),
    promptTall > 96 ? s("text", { class: "prompt-text", transform: `translate(${PROMPT / 2 + 4},${middle(firstRow) - BAR / 2 + promptTall / 2}) rotate(-90)`, "text-anchor": "middle" },
      `prompt · ${num(tree.prompt_tokens)} tokens`) : null));

  let labelled = {};
  tree.spans.forEach((span) => {
    const y = middle(span.row) - BAR / 2, end = span.x + span.w;
    nodes.push(drawSpan(span, y, lit(span), tree));
    const point = span.decision || span.items.length > 1 ? end + FORK / 2 : end;
    span.items.forEach((item) => {
      const way = item.row === span.row ? `M${end},${middle(span.row)}H${item.path ? point + 8 : item.x}`
        : `M${point},${middle(span.row)}V${middle(item.row) - 8}q0,8 8,8H${item.path ? point + 12 : item.x}`;
      const bright = on === null || (item.path ? view.kind === "leaf" && view.at === item.number : lit(item) && lit(span));
      links.push(s("path", { class: `link${item.row === span.row ? "" : " fork"}${bright ? "" : " dim"}`, d: way }));
      if (item.path) marks.push(ending(item, point + (item.row === span.row ? 10 : 16), width, !bright));
    });
    if (span.decision) {
      marks.push(fork(span, point, lit(span)));
      if (known(span.decision.delta) && !(labelled[span.row] > point - 24)) {
        marks.push(s("text", { class: `delta${lit(span) ? "" : " dim"}`, x: point, y: y - 4, "text-anchor": "middle" }, signed(span.decision.delta, 3).replace("0.", ".")));
        labelled[span.row] = point + 24;
      }
    }
  });
  const unit = [10, 20, 50, 100, 200, 500, 1000, 2000].find((n) => n * scale >= 40) || 5000;
  const scaleBar = s("g", { class: "scale" }, s("path", { d: `M${PROMPT + 16},${height - 14}v6h${unit * scale}v-6` }),
    s("text", { x: PROMPT + 22 + unit * scale, y: height - 6 }, `${unit} tokens`));
  links.sort((a, b) => b.classList.contains("dim") - a.classList.contains("dim"));
  const scroll = parts.box.scrollLeft;
  parts.box.replaceChildren(s("svg", { width, height, "aria-label": `Tree of ${many(tree.trajectories.length, "trajectory", "trajectories")}`, role: "group" },
    links, nodes, marks, scaleBar));
  parts.box.scrollLeft = scroll;
  parts.box.setAttribute("aria-label", "Rollout tree. Left and right arrows: other trees. Tab into it: arrows walk along the spans, Enter opens one.");
  parts.leaves.replaceChildren(...tree.rows.map(leafRow));
}

/* Which spans are bright: null for all. */
function selection(tree) {
  if (view.kind === "leaf") return new Set(tree.trajectories[view.at].path.map((span) => span.index));
  if (view.kind !== "span") return null;
  const on = new Set();
  for (let span = tree.spans[view.at]; span; span = tree.spans[span.parent]) on.add(span.index);
  const below = (span) => { on.add(span.index); span.children.forEach(below); };
  below(tree.spans[view.at]);
  return on;
}

function node(kind, at, label, classes) {
  const current = view.focus ? view.focus.kind === kind && view.focus.at === at : kind === "prompt";
  return { class: `node ${classes}`, role: "button", tabindex: current ? 0 : -1, "aria-label": label, "data-node": `${kind}-${at}`,
    onclick: () => select(kind, at), onkeydown: (event) => walk(event, kind, at) };
}

function drawSpan(span, y, bright, tree) {
  const model = span.kind === "model", chosen = view.kind === "span" && view.at === span.index;
  const bad = !model && span.tool && span.tool.status && span.tool.status !== "ok";
  const classes = [model ? "model" : "environment", bright ? "" : "dim", chosen ? "chosen" : "", bad ? "bad" : "", span.finish === "length" ? "cut" : ""];
  const said = model ? `Model, turn ${span.turn}, ${num(span.n)} tokens, mean entropy ${num(average(span.entropies))} nats`
    : `${toolName(span)}${span.tool ? ` (${plain(span.tool.status)})` : ""}, ${num(span.n)} tokens`;
  const label = `${said}${span.through.length > 1 ? `, shared by ${num(span.through.length)} trajectories` : ""}`;
  const short = model ? null : clip((bad ? "! " : "") + toolName(span), Math.floor((span.w - 12) / 6.6));
  return s("g", node("span", span.index, label, classes.join(" ")), s("title", {}, label),
    s("path", { class: "body", d: model ? pebble(span.x, y, span.w) : hexagon(span.x, y, span.w) }),
    model ? s("path", { class: "profile", d: profile(span.entropies || [], span.x + 3, y + 3, span.w - 6, BAR - 6, tree.most) })
      : s("text", { x: span.x + span.w / 2, y: y + BAR / 2 + 4, "text-anchor": "middle" }, span.w >= 44 ? short : bad ? "!" : ""),
    model && span.finish === "length" ? s("path", { class: "cut-mark", d: `M${span.x + span.w - 5},${y - 3}v${BAR + 6}` }) : null);
}

function fork(span, x, bright) {
  const decision = span.decision, y = middle(span.row), grew = decision.branches > 0;
  const wanted = !grew && decision.score > decision.threshold;
  return s("g", { class: `decision${grew ? " grew" : ""}${bright ? "" : " dim"}` },
    s("title", {}, explain(decision).join(" ")), s("path", { d: diamond(x, y, grew ? 8 : 5) }),
    grew ? s("text", { x, y: y + 3.5, "text-anchor": "middle" }, num(decision.branches)) : null,
    wanted ? s("path", { class: "slash", d: `M${x - 6},${y + 6}L${x + 6},${y - 6}` }) : null);
}

function ending(trajectory, x, width, dim) {
  const y = middle(trajectory.row), shape = outcomeShape(trajectory, x, y);
  return s("g", { class: `leaf-mark ${verdict(trajectory)}${dim ? " dim" : ""}` },
    s("path", { class: "leader", d: `M${x + 6},${y}H${width}` }), s("path", { class: "glyph", d: shape }));
}
function outcomeShape(trajectory, x, y) {
  if (trajectory.outcome === "answered") return `M${x - 5},${y}a5,5 0 1 0 10,0a5,5 0 1 0 -10,0Z`;
  if (trajectory.outcome === "failed") return `M${x - 5},${y - 5}l10,10M${x - 5},${y + 5}l10,-10`;
  return `M${x - 4.5},${y - 4.5}h9v9h-9Z`;
}
function verdict(trajectory) {
  if (!known(trajectory.reward)) return "void";
  const accuracy = (trajectory.components || {}).accuracy;
  return (known(accuracy) ? accuracy > 0 : trajectory.reward > 0) ? "right" : "wrong";
}
const VERDICTS = { right: ["✓", "right"], wrong: ["✗", "wrong"], void: ["!", "not scored"] };

function leafRow(trajectory) {
  if (!trajectory) return h("li", {}, h("span", { class: "leaf muted" }, "no trajectory ends here"));
  const [sign, word] = VERDICTS[verdict(trajectory)], chosen = view.kind === "leaf" && view.at === trajectory.number;
  const origin = originOf(trajectory);
  return h("li", {}, h("button", { type: "button", class: `leaf ${verdict(trajectory)}`, "aria-pressed": chosen ? "true" : "false",
    "aria-label": `Trajectory ${trajectory.number}, ${origin}: ${word}, reward ${fixed(trajectory.reward)}, ${trajectory.outcome || "unfinished"}${trajectory.answer === null || trajectory.answer === undefined ? "" : `, answer ${trajectory.answer}`}`,
    onclick: () => select("leaf", trajectory.number) },
  h("span", { class: "sign" }, sign), h("span", { class: "reward" }, fixed(trajectory.reward)),
  h("bdi", { class: "answer" }, trajectory.answer ?? trajectory.outcome ?? ""),
  h("span", { class: `origin ${trajectory.origin}` }, trajectory.origin)));
}
const originOf = (trajectory) => trajectory.origin === "branch" && known(trajectory.parent)
  ? `branched off trajectory ${trajectory.parent}` : trajectory.origin;

function legendList(tree) {
  const entry = (label, ...drawn) => h("li", {}, s("svg", { width: 34, height: 20, viewBox: "0 -2 34 28", "aria-hidden": "true" }, drawn), label);
  return [
    entry(`model; inside, the entropy of each token (full height ${num(tree.most, 2)} nats)`, s("g", { class: "node model" }, s("path", { class: "body", d: pebble(0, 0, 34) }), s("path", { class: "profile", d: "M3,21L3,16H7V10H11V14H15V18H19V5H23V13H27V17H31V21Z" }))),
    entry("environment (! if the call went wrong)", s("g", { class: "node environment" }, s("path", { class: "body", d: hexagon(0, 0, 34) }))),
    entry("cut at the token limit", s("g", { class: "node model" }, s("path", { class: "body", d: pebble(0, 0, 34) }), s("path", { class: "cut-mark", d: `M29,-3v${BAR + 6}` }))),
    entry("branched: copies made; above, the entropy rise in ln V", s("g", { class: "decision grew" }, s("path", { d: diamond(17, 12, 9) }), s("text", { x: 17, y: 16, "text-anchor": "middle" }, "1"))),
    entry("did not branch", s("g", { class: "decision" }, s("path", { d: diamond(17, 12, 6) }))),
    entry("would have; no budget", s("g", { class: "decision" }, s("path", { d: diamond(17, 12, 6) }), s("path", { class: "slash", d: "M10,19L24,5" }))),
    entry("answered right", s("g", { class: "leaf-mark right" }, s("path", { class: "glyph", d: outcomeShape({ outcome: "answered" }, 17, 12) }))),
    entry("wrong", s("g", { class: "leaf-mark wrong" }, s("path", { class: "glyph", d: outcomeShape({ outcome: "answered" }, 17, 12) }))),
    entry("no answer or cut", s("g", { class: "leaf-mark wrong" }, s("path", { class: "glyph", d: outcomeShape({ outcome: "truncated" }, 17, 12) }))),
    entry("failed: not scored", s("g", { class: "leaf-mark void" }, s("path", { class: "glyph", d: outcomeShape({ outcome: "failed" }, 17, 12) }))),
    h("li", { class: "keys" }, "← → other trees; inside the tree the arrows walk, Enter opens"),
  ];
}

function select(kind, at) {
  const tree = trees[view.tree];
  if ((kind === "span" && !tree.spans[at]) || (kind === "leaf" && !tree.trajectories[at])) return;
  Object.assign(view, { kind, at });
  const held = document.activeElement && document.activeElement.closest(".node");
  const pressed = document.activeElement && document.activeElement.closest(".leaf");
  if (kind !== "leaf") view.focus = { kind, at };
  drawTree();
  drawPanel();
  if (held) focusNode(view.focus || { kind: "prompt", at: 0 });
  if (pressed) { const again = parts.leaves.querySelector('[aria-pressed="true"]'); if (again) again.focus({ preventScroll: true }); }
  if (matchMedia("(max-width: 1099px)").matches) parts.panel.scrollIntoView({ block: "nearest", behavior: pace });
}

/* Arrow keys inside the tree: along the path, or to the nearest span of the row above or below. */
function walk(event, kind, at) {
  const tree = trees[view.tree], span = kind === "span" ? tree.spans[at] : null;
  if (event.key === "Enter" || event.key === " ") { select(kind, at); event.preventDefault(); return; }
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  const down = (span ? span.items : tree.items).find((item) => !item.path);
  const x = span ? span.x : 0, row = span ? span.row : tree.items.length ? tree.items[0].row : 0;
  const beside = (way) => tree.spans.filter((other) => (other.row - row) * way > 0)
    .sort((a, b) => Math.abs(a.row - row) - Math.abs(b.row - row) || Math.abs(a.x - x) - Math.abs(b.x - x))[0];
  const moves = {
    ArrowLeft: () => span ? tree.spans[span.parent] || "prompt" : null, ArrowRight: () => down,
    ArrowUp: () => beside(-1), ArrowDown: () => beside(1),
  };
  if (!moves[event.key]) return;
  event.preventDefault();
  event.stopPropagation();
  const to = moves[event.key]();
  if (to) focusNode(to === "prompt" ? { kind: "prompt", at: 0 } : { kind: "span", at: to.index });
}
function focusNode(where) {
  parts.box.querySelectorAll('.node[tabindex="0"]').forEach((other) => other.setAttribute("tabindex", -1));
  const element = parts.box.querySelector(`[data-node="${where.kind}-${where.at}"]`);
  if (!element) return;
  view.focus = where;
  element.setAttribute("tabindex", 0);
  element.focus();
}

/* ---- trees: the panel ------------------------------------------------------------------------------------- */

const average = (values) => { const usable = (values || []).filter(known); return usable.length ? mean(usable) / 1000 : null; };
const toolName = (span) => span.tool && span.tool.name ? String(span.tool.name) : "environment";
const FINISHES = { stop: "at a stop string", eos: "end of text", length: "cut at the token limit" };
const pairs = (entries) => h("dl", { class: "pairs" }, entries.filter(([, value]) => value !== null && value !== undefined && value !== "")
  .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, h("bdi", {}, value)))));
const prose = (text) => h("pre", { class: "text", dir: "auto", tabindex: 0 }, text || "(empty)");

function drawPanel() {
  const tree = trees[view.tree];
  const drawn = view.kind === "leaf" ? leafPanel(tree, tree.trajectories[view.at])
    : view.kind === "span" ? spanPanel(tree, tree.spans[view.at]) : promptPanel(tree);
  const link = `#tree=${view.tree}${view.kind === "prompt" ? "" : `&${view.kind}=${view.at}`}`;
  parts.panel.replaceChildren(...drawn, h("p", { class: "permalink" }, h("a", { href: link }, "link to this view")));
  parts.panel.scrollTop = 0;
}

function promptPanel(tree) {
  return [h("h3", {}, "Prompt"), pairs([["tokens", num(tree.prompt_tokens)], ["task", plain(tree.task.id)], ["source", tree.task.source || null], ["seed", known(tree.seed) ? num(tree.seed) : null]]),
    h("p", { class: "hint" }, "Click a span to read it, or a trajectory on the right of the tree to read it from start to end."), prose(tree.prompt)];
}

function sharedBy(span) {
  const count = span.through.length;
  return count > 1 ? `${num(count)} trajectories (${span.through.join(", ")})` : null;
}

function spanPanel(tree, span) {
  const model = span.kind === "model";
  const surprise = average(span.logprobs);
  const rows = model ? [
    ["tokens", num(span.n)], ["ended", FINISHES[span.finish] || span.finish], ["mean entropy", `${num(average(span.entropies))} nats`],
    ["first 20 tokens", `${num(average((span.entropies || []).slice(0, 20)))} nats`],
    ["mean log-probability", surprise === null ? null : num(surprise)], ["shared by", sharedBy(span)],
  ] : [["tokens", num(span.n)], ["tool", span.tool ? toolName(span) : null], ["status", span.tool ? plain(span.tool.status) : null],
    ["took", span.tool && known(span.tool.seconds) ? `${num(span.tool.seconds)} s` : null], ["shared by", sharedBy(span)]];
  return [
    h("h3", {}, h("span", { class: `tag ${model ? "model" : "environment"}` }, model ? "model" : "environment"), model ? ` turn ${span.turn}` : ` after turn ${span.turn}`),
    pairs(rows), model && span.n > 1 ? spark(span) : null, span.decision ? decisionBox(span.decision) : null, prose(span.text),
  ].filter(Boolean);
}

function spark(span) {
  const width = 360, height = 74, left = 26, usable = (span.entropies || []).filter(known).map((value) => value / 1000);
  const surprises = (span.logprobs || []).map((value) => known(value) ? -value / 1000 : null);
  const most = Math.max(0.1, ...usable, ...surprises.filter(known)), step = (width - left) / Math.max(1, span.n);
  const y = (value) => 6 + (1 - value / most) * (height - 12);
  return h("figure", { class: "spark" },
    s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Entropy of each token: mean ${num(average(span.entropies))}, most ${num(Math.max(0, ...usable))} nats` },
      s("line", { class: "rule", x1: left, x2: width, y1: y(most), y2: y(most) }), s("line", { class: "axis", x1: left, x2: width, y1: y(0), y2: y(0) }),
      s("text", { class: "tick", x: left - 5, y: y(most) + 5, "text-anchor": "end" }, num(most, 2)), s("text", { class: "tick", x: left - 5, y: y(0) + 3, "text-anchor": "end" }, "0"),
      s("path", { class: "profile", d: profile(span.entropies || [], left, y(most), width - left, y(0) - y(most), most) }),
      span.n > 20 ? s("line", { class: "window", x1: left + 20 * step, x2: left + 20 * step, y1: 2, y2: height - 4 }) : null,
      surprises.map((value, index) => known(value) ? s("circle", { class: "surprise", cx: left + (index + 0.5) * step, cy: y(value), r: Math.min(2, Math.max(0.8, step / 3)) }) : null)),
    h("figcaption", {}, h("span", { class: "swatch profile" }), "entropy of each token, in nats  ", h("span", { class: "dot surprise" }), " surprise of the one drawn"));
}

function explain(decision) {
  const rose = decision.delta >= 0 ? "above" : "below", copies = decision.branches;
  const passed = decision.score > decision.threshold;
  return [
    `The entropy of the first tokens after this result was ${num(decision.entropy)} (in units of ln V), ${num(Math.abs(decision.delta))} ${rose} the first turn.`,
    `Branch score P = ${num(decision.score, 4)}, ${passed ? "above" : "not above"} the threshold τ = ${num(decision.threshold)}.`,
    `${copies ? `So ${many(copies, "copy", "copies")} of the episode ${copies === 1 ? "was" : "were"} made` : "No branch"}: ${plain(decision.reason)}.`,
  ];
}
const decisionBox = (decision) => h("div", { class: `decision-box${decision.branches ? " grew" : ""}` },
  h("h4", {}, decision.branches ? "Branched here" : "Did not branch"), explain(decision).map((line) => h("p", {}, line)));

function leafPanel(tree, trajectory) {
  const [sign, word] = VERDICTS[verdict(trajectory)];
  const components = Object.entries(trajectory.components || {}).map(([name, value]) => `${name} ${fixed(value)}`).join(", ");
  const tokens = trajectory.path.reduce((sum, span) => sum + span.n, 0);
  return [
    h("h3", {}, `Trajectory ${trajectory.number} `, h("span", { class: `tag ${verdict(trajectory)}` }, `${sign} ${word}`)),
    pairs([["reward", fixed(trajectory.reward)], ["made of", components || null], ["outcome", trajectory.outcome], ["began as", originOf(trajectory)],
      ["answer", trajectory.answer === null || trajectory.answer === undefined ? "–" : plain(trajectory.answer)], ["gold", [].concat(tree.task.answers ?? []).map(plain).join(" · ")],
      ["tool calls", num(trajectory.tool_calls)], ["tokens", num(tokens)]]),
    trajectory.error ? h("p", { class: "note alarm" }, trajectory.error) : null,
    h("ol", { class: "transcript" }, trajectory.path.map((span) => transcriptPart(span))),
  ].filter(Boolean);
}

function transcriptPart(span) {
  const model = span.kind === "model";
  const about = [`${num(span.n)} tokens`, model ? `entropy ${num(average(span.entropies), 2)}` : span.tool ? plain(span.tool.status) : null,
    span.through.length > 1 ? `shared by ${num(span.through.length)}` : null, span.decision && span.decision.branches ? "branched after this" : null];
  return h("li", { class: model ? "model" : "environment" },
    h("button", { type: "button", class: "part-head", onclick: () => select("span", span.index) },
      h("b", {}, model ? `model, turn ${span.turn}` : toolName(span)), h("span", {}, about.filter(Boolean).join(" · "))),
    h("pre", { class: "text", dir: "auto" }, span.text || "(empty)"));
}

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

})();
