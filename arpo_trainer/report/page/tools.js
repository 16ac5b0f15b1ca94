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
const nothing = (text) => h("p", { class: "empty" }, text);
