/* ---- the list: only the rows in sight are on the page ----------------------------------------------------- */

const listing = { items: [], at: 0, sort: "", down: false, columns: [] };
const grid = {};
const ABOVE = 6;  // rows drawn beyond the edges
/* On a narrow screen a row has two lines, or three if it has to name the model or two answers. */
const tall = () => listing.columns.some((column) => column.key === "model" || column.key === "A");
const rowHeight = () => !matchMedia("(max-width: 720px)").matches ? 38 : tall() ? 98 : 76;

const sign = (entry) => { const [mark, word] = SIGNS[verdictOf(entry)]; return h("span", { class: `sign ${verdictOf(entry)}`, title: word }, mark, h("span", { class: "unseen" }, `${word} `)); };
const answersOf = (entry) => { const given = [...new Set(entry.episodes.map((episode) => episode.answer).filter((answer) => answer !== null && answer !== undefined))]; return given.length ? given.map(plain).join(" · ") : entry.broken ? entry.episodes.map((episode) => episode.cause).filter(Boolean)[0] || "broken" : "no answer"; };
const shareOf = (entry) => entry.episodes.length > 1 ? `${num(entry.right)}/${num(entry.scored)}` : known(entry.score) ? fixed(entry.score) : "–";
const goldOf = (task) => task.answers.map(plain).join(" · ");
const scoreOf = (entry) => entry && known(entry.score) ? entry.score : -1;
const place = (entry) => entry.task.index;

function columnsOf() {
  const sides = sidesOf(), envs = new Set(unitsOf.flat().map((unit) => unit.task.env)).size, text = (value) => h("span", { dir: "auto", class: "cut" }, clip(value || "–", 400));
  const question = { key: "question", name: "question", wide: "minmax(0, 3fr)", value: (entry) => entry.task.question, cell: (entry) => text(entry.task.question || entry.task.id) };
  const gold = { key: "gold", name: "gold", wide: "minmax(0, 1fr)", value: (entry) => goldOf(entry.task), cell: (entry) => text(goldOf(entry.task)) };
  const env = { key: "env", name: "environment", wide: "minmax(0, 1fr)", value: (entry) => entry.task.env, cell: (entry) => text(entry.task.env) };
  const number = { key: "number", name: "#", wide: "52px", value: place, cell: (entry) => num(entry.task.index + 1), number: true };
  if (want.mode === "pairs") {
    const side = (at, name) => ({ key: name, name, wide: "minmax(0, 1.3fr)", value: (pair) => scoreOf(pair.sides[at]),
      cell: (pair) => pair.sides[at] ? h("span", { class: "answer-cell" }, sign(pair.sides[at]), h("span", { class: "share" }, shareOf(pair.sides[at])), text(answersOf(pair.sides[at]))) : "–" });
    return [number, question, gold, side(0, "A"), side(1, "B"), ...(envs > 1 ? [env] : []), { key: "change", name: "change", wide: "84px", value: (pair) => scoreOf(pair.sides[1]) - scoreOf(pair.sides[0]), cell: (pair) => h("span", { class: `change ${changeOf(pair)}` }, changeOf(pair)) }];
  }
  return [number, { key: "result", name: "result", wide: "74px", value: scoreOf, cell: (entry) => h("span", { class: "answer-cell" }, sign(entry), shareOf(entry)) }, question, gold,
    { key: "answer", name: "answer", wide: "minmax(0, 1fr)", value: answersOf, cell: (entry) => text(answersOf(entry)) },
    ...(sides.length > 1 ? [{ key: "model", name: "model", wide: "minmax(0, 0.9fr)", value: (entry) => sideName(entry), cell: (entry) => text(sideName(entry)) }] : []), ...(envs > 1 ? [env] : []),
    ...(unitsOf.flat().some((unit) => unit.task.level) ? [{ key: "level", name: "level", wide: "64px", value: (entry) => entry.task.level, cell: (entry) => text(entry.task.level) }] : []),
    { key: "calls", name: "calls", wide: "58px", value: (entry) => entry.called, cell: (entry) => num(entry.called, 2), number: true },
    { key: "tokens", name: "tokens", wide: "68px", value: (entry) => entry.tokens, cell: (entry) => num(Math.round(entry.tokens)), number: true },
    { key: "seconds", name: "s", wide: "58px", value: (entry) => entry.seconds, cell: (entry) => num(entry.seconds, 2), number: true }];
}

function makeGrid() {
  grid.head = h("div", { class: "grid-row head", role: "row", "aria-rowindex": 1 });
  grid.space = h("div", { class: "space", role: "rowgroup" });
  grid.port = h("div", { class: "port", role: "presentation", onscroll: () => requestAnimationFrame(drawRows) }, grid.space);
  grid.box = h("div", { class: "grid-box", role: "grid", tabindex: 0, "aria-label": "Tasks. Arrows or j and k move, Enter opens.", onkeydown: gridKey }, grid.head, grid.port);
  $("list").replaceChildren(grid.box);
  grid.port.tabIndex = -1;
  picture(drawRows);
}

function list(items, keep) {
  if (!grid.box) makeGrid();
  const chosen = keep ? listing.items[listing.at] : null;
  listing.columns = columnsOf();
  listing.items = items;
  order();
  const same = (entry) => entry.task.env === chosen.task.env && entry.task.id === chosen.task.id && entry.model === chosen.model && entry.run === chosen.run && (!entry.units || entry.units[0].sample === chosen.units[0].sample);
  listing.at = chosen ? Math.max(0, listing.items.findIndex(same)) : 0;
  if (!keep) grid.port.scrollTop = 0;
  controls.count.textContent = items.length ? `${many(items.length, want.mode === "list" && want.bySample ? "sample" : "task")} listed` : "nothing fits these filters";
  drawHead();
  drawRows();
}
function order() {
  const column = listing.columns.find((one) => one.key === listing.sort);
  if (!column) return;
  const keyed = listing.items.map((entry, number) => [column.value(entry), number, entry]);
  const compare = typeof (keyed[0] || [0])[0] === "string" ? (a, b) => a.localeCompare(b, undefined, { numeric: true }) : (a, b) => (a ?? -1) - (b ?? -1);
  keyed.sort((a, b) => (listing.down ? -1 : 1) * compare(a[0], b[0]) || a[1] - b[1]);
  listing.items = keyed.map(([, , entry]) => entry);
}
function sortBy(key) {
  if (listing.sort !== key) Object.assign(listing, { sort: key, down: false });
  else if (!listing.down) listing.down = true;
  else listing.sort = "";
  refresh();
  const again = grid.head.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (again) again.focus();
}
function drawHead() {
  const template = listing.columns.map((column) => column.wide).join(" ");
  grid.template = template;
  grid.head.style.gridTemplateColumns = template;
  grid.head.replaceChildren(...listing.columns.map((column) => {
    const state = listing.sort !== column.key ? "none" : listing.down ? "descending" : "ascending";
    return h("div", { role: "columnheader", "aria-sort": state, class: column.number ? "number" : null }, h("button", { type: "button", class: "plain", "data-key": column.key, onclick: () => sortBy(column.key) },
      column.name, h("span", { "aria-hidden": "true" }, { none: "", ascending: " ▴", descending: " ▾" }[state])));
  }));
  grid.box.setAttribute("aria-rowcount", listing.items.length + 1);
}
function drawRows() {
  if (!grid.box) return;
  const height = rowHeight(), narrow = height > 38;
  grid.space.style.height = `${Math.max(1, listing.items.length) * height}px`;
  const first = Math.max(0, Math.floor(grid.port.scrollTop / height) - ABOVE), last = Math.min(listing.items.length, Math.ceil((grid.port.scrollTop + grid.port.clientHeight) / height) + ABOVE);
  const drawn = [];
  for (let at = first; at < last; at += 1) {
    const row = h("div", { class: `grid-row${at === listing.at ? " at" : ""}${narrow && tall() ? " tall" : ""}${want.mode === "pairs" ? " pair" : ""}`, role: "row", id: `row-${at}`, "aria-rowindex": at + 2, "aria-selected": String(at === listing.at), onclick: () => { listing.at = at; openDetail(); } },
      listing.columns.map((column) => h("div", { role: "gridcell", class: `cell-${column.key}${column.number ? " number" : ""}` }, column.cell(listing.items[at]))));
    row.style.transform = `translateY(${at * height}px)`;
    if (!narrow) row.style.gridTemplateColumns = grid.template;
    drawn.push(row);
  }
  grid.space.replaceChildren(...drawn);
  if (listing.items.length) grid.box.setAttribute("aria-activedescendant", `row-${listing.at}`);
  else grid.box.removeAttribute("aria-activedescendant");
}
function moveTo(at) {
  if (!listing.items.length) return;
  listing.at = Math.max(0, Math.min(listing.items.length - 1, at));
  const height = rowHeight(), top = listing.at * height;
  if (top < grid.port.scrollTop) grid.port.scrollTop = top;
  else if (top + height > grid.port.scrollTop + grid.port.clientHeight) grid.port.scrollTop = top + height - grid.port.clientHeight;
  drawRows();
}
function gridKey(event) {
  if (event.target.closest("button") || event.altKey || event.ctrlKey || event.metaKey) return;
  const page = Math.max(1, Math.floor(grid.port.clientHeight / rowHeight()) - 1);
  const to = { ArrowDown: listing.at + 1, ArrowUp: listing.at - 1, PageDown: listing.at + page, PageUp: listing.at - page, Home: 0, End: listing.items.length - 1 }[event.key];
  if (to !== undefined) { moveTo(to); event.preventDefault(); }
  if (event.key === "Enter") { openDetail(); event.preventDefault(); }
}
