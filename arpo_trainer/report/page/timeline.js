/* ---- what there is: names, colours, the window of time ------------------------------------------------------ */

const wall = data.wall || 1;
const tools = Object.keys(data.use.tools).sort();
const GUTTER = 76, EDGE = 10;
const view = { from: 0, to: wall };
const WORK = { generate: "generating", reset: "reset", answer: "grading", fork: "forking", retry: "retrying", start: "a place", settle: "settling" };
const WAIT = { generate: "waiting for the model", tool: "waiting for a tool’s place", start: "waiting for a place to start",
  settle: "waiting for earlier branches", reset: "waiting to reset", answer: "waiting to be graded", fork: "waiting to fork", retry: "waiting to try again" };

/* The name of a CSS colour for a kind of event. */
function hue(kind, name) {
  if (kind === "tool") return `tool${Math.max(0, tools.indexOf(name || "tool")) % 4}`;
  return { generate: "generate", answer: "answer", fork: "fork", settle: "fork", retry: "retry" }[kind] || "reset";
}
/* An entry of `shares` as [said, colour, whether it is waiting]. */
function activity(share) {
  if (share === "other") return ["between events", "other", false];
  if (share.startsWith("tool ")) return [share.slice(5), hue("tool", share.slice(5)), false];
  if (share.startsWith("wait ")) return [WAIT[share.slice(5)] || share, hue(share.slice(5), ""), true];
  return [WORK[share] || share, hue(share, ""), false];
}

const palette = {};
const hatches = {};
function readPalette() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["generate", "tool0", "tool1", "tool2", "tool3", "answer", "reset", "fork", "retry", "other", "on-tool0", "on-tool1", "on-tool2",
    "on-tool3", "ink", "soft", "line", "faint", "card", "alarm", "right", "ground", "sans", "focus"]) palette[name] = style.getPropertyValue(`--${name}`).trim();
  for (const name of Object.keys(hatches)) delete hatches[name];
}
/* A pattern of slanted lines, for canvases; one device pixel of it is one of the canvas. */
function hatch(name, ratio) {
  if (hatches[name]) return hatches[name];
  const tile = document.createElement("canvas"), side = Math.round(5 * ratio);
  tile.width = tile.height = side;
  const ink = tile.getContext("2d");
  ink.globalAlpha = 0.22;
  ink.fillStyle = palette[name];
  ink.fillRect(0, 0, side, side);
  ink.globalAlpha = 1;
  ink.strokeStyle = palette[name];
  ink.lineWidth = 1.4 * ratio;
  ink.beginPath();
  for (const shift of [-side, 0, side]) { ink.moveTo(shift, side); ink.lineTo(shift + side, 0); }
  ink.stroke();
  hatches[name] = ink.createPattern(tile, "repeat");
  return hatches[name];
}

/* Makes a canvas as sharp as the screen, and returns [context, width in CSS pixels, pixel ratio]. */
function sheet(canvas, height) {
  const ratio = devicePixelRatio || 1, width = wide(canvas);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const ink = canvas.getContext("2d");
  ink.setTransform(ratio, 0, 0, ratio, 0, 0);
  ink.font = `12px ${palette.sans}`;
  ink.textBaseline = "middle";
  return [ink, width, ratio];
}
const across = (seconds, width) => GUTTER + ((seconds - view.from) / (view.to - view.from)) * (width - GUTTER - EDGE);
const secondsAt = (x, width) => view.from + ((x - GUTTER) / (width - GUTTER - EDGE)) * (view.to - view.from);

function marks(width) {
  const raw = (view.to - view.from) / Math.max(2, (width - GUTTER) / 90), power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= raw * 0.999);
  const found = [];
  for (let k = Math.ceil(view.from / step); k * step <= view.to; k += 1) found.push(Number((k * step).toPrecision(12)));
  return found;
}
const clock = (seconds, digits = 4) => seconds > 0 && seconds < 0.1 ? `${num(1000 * seconds, 2)} ms` : `${num(seconds, digits)} s`;

/* ---- summary ------------------------------------------------------------------------------------------------ */

/* A bar of shares as SVG: waiting is hatched. */
let patterns = 0;
function shareBar(shares, height) {
  const entries = Object.entries(shares), said = entries.map(([name, share]) => `${activity(name)[0]} ${percent(share)}`).join(", ");
  let at = 0;
  const drawn = entries.map(([name, share]) => {
    const [label, colour, waits] = activity(name), x = at;
    at += share;
    return s("g", {}, s("title", {}, `${label}: ${percent(share)}`), swatch(colour, waits, `${100 * x}%`, `${100 * share}%`, height));
  });
  return s("svg", { class: "share", height, width: "100%", role: "img", "aria-label": said }, drawn);
}
function swatch(colour, waits, x, width, height) {
  if (!waits) return s("rect", { x, width, height, fill: `var(--${colour})` });
  const id = `hatch${patterns += 1}`;
  return [s("pattern", { id, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(-45)" },
    s("rect", { width: 5, height: 5, fill: `var(--${colour})`, opacity: 0.22 }), s("line", { x1: 0, x2: 5, y1: 2, y2: 2, stroke: `var(--${colour})`, "stroke-width": 1.6 })),
  s("rect", { x, width, height, fill: `url(#${id})` })];
}

function figures() {
  const use = data.use, spent = (test) => Object.entries(use.shares).filter(([name]) => test(name)).reduce((sum, [, share]) => sum + share, 0);
  return h("dl", { class: "figures" }, [
    ["took", clock(data.wall, 3)], ["model idle", percent(1 - data.busy / wall)],
    ["tokens a second", use.tokens ? num(Math.round(use.tokens / (data.busy || 1))) : "–"],
    ["context from cache", use.context ? percent(use.cached / use.context) : "–"],
    ["a trajectory lives", use.trajectories ? clock(use.life / use.trajectories, 3) : "–"],
    ["generating", percent(use.shares.generate || 0)], ["in tools", percent(spent((name) => name.startsWith("tool ")))],
    ["waiting", percent(spent((name) => name.startsWith("wait ")))],
  ].map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function summary() {
  const each = Math.max(1, data.use.trajectories);
  const key = Object.entries(data.use.shares).filter(([, share]) => share >= 0.0005).map(([name, share]) => {
    const [label, colour, waits] = activity(name);
    return h("li", {}, s("svg", { width: 22, height: 12, "aria-hidden": "true" }, swatch(colour, waits, 0, 22, 12)),
      h("span", {}, `${label} `, h("b", {}, percent(share)), h("span", { class: "muted" }, ` ${clock((share * data.use.life) / each, 3)}`)));
  });
  $("summary-body").append(figures(), h("div", { class: "card" },
    h("p", { class: "sub" }, `Where the life of ${many(data.use.trajectories, "trajectory", "trajectories")} went; seconds are means a trajectory. Waiting is hatched.`),
    shareBar(data.use.shares, 22), h("ul", { class: "share-key" }, key)));
}

function heading() {
  const env = data.facts.env, entries = [["environment", env && (env.id || plain(env))], ["model", data.facts.model], ["algorithm", data.facts.algorithm],
    ["step", num(data.step)], ["trees", num(data.trees.length)], ["trajectories", num(data.use.trajectories)]];
  $("facts").append(...entries.filter(([, value]) => value).map(([name, value]) => h("li", {}, h("span", { class: "key" }, `${name} `), h("bdi", {}, plain(value)))));
  const notes = [];
  if (data.steps > 1) notes.push(`The traces hold ${num(data.steps)} steps; another one: arpo view timeline PATH --step N.`);
  if (notes.length) $("notes").append(h("p", { class: "note" }, notes.join(" ")));
  $("foot").textContent = "One file; it loads nothing.";
}

/* ---- the load on the model, over time ----------------------------------------------------------------------- */

function loadChart() {
  const canvas = h("canvas", { role: "img", "aria-label": `Requests being generated over time: at most ${num(most(data.load.generate))}; none for ${percent(1 - data.busy / wall)} of the time` });
  $("load").append(canvas);
  draws.push(() => drawLoad(canvas));
}
const most = (steps) => Math.max(0, ...steps.map(([, level]) => level));

function drawLoad(canvas) {
  const top = 8, bottom = 74, [ink, width] = sheet(canvas, 96);
  const peak = Math.max(1, most(data.load.generate), most(data.load.queue), most(data.load.tool));
  const y = (level) => bottom - (level / peak) * (bottom - top);
  ink.fillStyle = palette.soft;
  ink.font = `11px ${palette.sans}`;
  ink.textAlign = "right";
  for (const level of [0, peak]) {
    ink.fillText(num(level), GUTTER - 7, y(level));
    ink.fillStyle = palette.line;
    ink.fillRect(GUTTER, Math.round(y(level)), width - GUTTER - EDGE, 1);
    ink.fillStyle = palette.soft;
  }
  ink.textAlign = "center";
  for (const mark of marks(width)) {
    const x = across(mark, width);
    ink.fillText(`${num(mark, 6)}${x + 60 > width ? " s" : ""}`, Math.min(x, width - 16), bottom + 14);
    ink.fillRect(x, bottom, 1, 4);
  }
  ink.save();
  ink.beginPath();
  ink.rect(GUTTER, 0, width - GUTTER - EDGE, bottom + 4);
  ink.clip();
  stairs(ink, data.load.generate, y, width, true);
  ink.globalAlpha = 0.35;
  ink.fillStyle = palette.generate;
  ink.fill();
  ink.globalAlpha = 1;
  for (const [name, colour, dashes] of [["generate", "generate", []], ["tool", "tool0", [6, 2]], ["queue", "ink", [2, 2]]]) {
    stairs(ink, data.load[name], y, width, false);
    ink.setLineDash(dashes);
    ink.strokeStyle = palette[colour];
    ink.lineWidth = 1.5;
    ink.stroke();
  }
  ink.setLineDash([]);
  idle(ink, width, bottom);
  ink.restore();
}
function stairs(ink, steps, y, width, closed) {
  ink.beginPath();
  ink.moveTo(across(0, width), y(0));
  let before = 0;
  for (const [moment, level] of steps) {
    const x = across(moment, width);
    ink.lineTo(x, y(before));
    ink.lineTo(x, y(level));
    before = level;
  }
  ink.lineTo(across(wall, width), y(before));
  if (closed) { ink.lineTo(across(wall, width), y(0)); ink.closePath(); }
}
/* Marks below the axis when nothing was being generated. */
function idle(ink, width, bottom) {
  const ends = [[0, 0], ...data.load.generate, [wall, 0]];
  ink.fillStyle = palette.alarm;
  for (let index = 0; index + 1 < ends.length; index += 1) {
    if (ends[index][1]) continue;
    const from = across(ends[index][0], width);
    ink.fillRect(from, bottom, Math.max(0, across(ends[index + 1][0], width) - from), 4);
  }
}
