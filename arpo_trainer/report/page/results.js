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
    ["tokens, shared ones once", unique ? num(unique) : null],
    ["sharing factor", unique ? `×${fixed(copied / unique)}` : null],
    ["tool calls a task", calls],
    ["could not be scored", rows.length ? num(invalid) : null],
  ];
  return h("dl", { class: "tally" }, entries.filter(([, value]) => value !== null).map(([name, value]) =>
    h("div", { class: name === "could not be scored" && invalid ? "alarm" : null }, h("dt", {}, name), h("dd", {}, value))));
}
