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
  const steps = new Map(data.metrics.map((row) => [row.step, row]));
  for (const run of data.evaluations) {
    const row = steps.get(run.step);
    if (row) Object.assign(row, { held_out_accuracy: run.accuracy, held_out_reward: run.reward, held_out_tool_calls: run.tool_calls });
  }
  const has = (key) => data.metrics.some((row) => known(row[key]));
  const host = h("div", { class: "grid" });
  const add = (spec) => {
    spec.series = spec.series.filter((series) => has(series.key));
    if (spec.series.length) host.append(chart(spec));
  };
  body.append(h("p", { class: "hint" }, "Hover, or focus a chart and use the arrow keys, to read a step in all of them." + (trees.length ? " Click to see that step’s trees." : "")), host);
  add({ title: "Reward", note: "mean; band: one standard deviation", zero: true, series: [
    { key: "reward", name: "reward", class: "a", band: "reward_std" }, { key: "accuracy", name: "accuracy", class: "b" }] });
  if (data.metrics.filter((row) => known(row.held_out_accuracy)).length > 1) {
    add({ title: "Held-out tasks", note: "greedy, while training", zero: true, series: [
      { key: "held_out_accuracy", name: "accuracy", class: "b" }, { key: "held_out_reward", name: "reward", class: "a" }] });
  }
  add({ title: "Tool calls", note: "mean a trajectory", zero: true, series: [{ key: "tool_calls", name: "tool calls", class: "a" }] });
  add({ title: "Entropy", note: "mean nats a token", zero: true, series: [
    { key: "entropy", name: "all", class: "a" }, { key: "entropy_after_tool", name: "after a tool result", class: "b" },
    { key: "entropy_first", name: "first turn", class: "c" }] });
  add({ title: "Trajectories", note: "by how they began", stacked: true, series: [
    { key: "roots", name: "roots", class: "roots" }, { key: "branches", name: "branches", class: "branches" },
    { key: "top_ups", name: "top-ups", class: "topups" }] });
  // a rollout that is played ahead runs beside the update, so its seconds are no part of the step's
  if (has("seconds_trainer_idle")) {
    add({ title: "Where the time went", note: "seconds a step of the training process", stacked: true, line: "seconds_step", series: [
      { key: "seconds_trainer_idle", name: "wait for the rollout", class: "generate" },
      { key: "seconds_score", name: "score", class: "score" }, { key: "seconds_update", name: "update", class: "update" }] });
  } else add({ title: "Where the time went", note: "seconds a step; tools run while the model generates", stacked: true, line: "seconds_step", series: [
    { key: "seconds_generate", name: "generate", class: "generate" }, { key: "seconds_tools", name: "tools", class: "tools" },
    { key: "seconds_score", name: "score", class: "score" }, { key: "seconds_update", name: "update", class: "update" }] });
  add({ title: "Rollouts ahead: who waits", note: "seconds a step", zero: true, series: [
    { key: "seconds_trainer_idle", name: "the update, for the rollout", class: "a" }, { key: "seconds_rollout_idle", name: "the rollout, for the update", class: "b" }] });
  add({ title: "Staleness", note: "steps that the weights of the rollout were behind", zero: true, series: [{ key: "staleness", name: "staleness", class: "a" }] });
  add({ title: "What trajectories waited for", note: "mean seconds a trajectory", stacked: true, series: [
    { key: "wait/generate", name: "the model", class: "generate" }, { key: "wait/tool", name: "a tool’s place", class: "tools" },
    { key: "wait/settle", name: "earlier branches", class: "branches" }, { key: "wait/start", name: "a place to start", class: "roots" }] });
  add({ title: "Branching", note: "shares", zero: true, series: [
    { key: "branch_budget_used", name: "branch budget used", class: "a" }, { key: "fork_contrast", name: "forks whose branches differ in reward", class: "b" },
    { key: "decisions_passed", name: "tool results that pass the rule", class: "c" }] });
  add({ title: "Shares", note: "of 1", zero: true, series: [
    { key: "cache_hits", name: "context from cache", class: "b" },
    { key: "model_idle", name: "model idle", class: "c" }] });
  host.append(anyMetric());
  if (has("wait_share")) body.append(h("p", { class: "hint" }, "What each trajectory of a step waited for: ", h("code", {}, "arpo view timeline"), " with the folder of this page."));
  body.append(numbers());
}

const shown = new Set(["step", "reward", "reward_std", "accuracy", "tool_calls", "entropy", "entropy_after_tool", "entropy_first",
  "roots", "branches", "top_ups", "seconds_generate", "seconds_tools", "seconds_score", "seconds_update",
  "wait/generate", "wait/tool", "wait/settle", "wait/start", "branch_budget_used", "fork_contrast", "decisions_passed", "cache_hits", "model_idle",
  "staleness", "seconds_trainer_idle", "seconds_rollout_idle",
  "held_out_accuracy", "held_out_reward"]);
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
      if (value === undefined) return; // a step without a rollout, or without an evaluation
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
    const last = rows.findLastIndex((row) => spec.series.some((series) => known(row[series.key])));
    const index = hovered === null ? Math.max(0, last) : hovered, row = rows[index];
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
