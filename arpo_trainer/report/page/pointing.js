/* ---- zoom, pointer, keys ------------------------------------------------------------------------------------- */

let frame = 0;
function redraw() {
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(() => draws.forEach((draw) => draw()));
}

function look(from, to) {
  const span = Math.min(wall, Math.max(wall / 5000, to - from));
  view.from = Math.max(0, Math.min(from, wall - span));
  view.to = view.from + span;
  $("window").textContent = span >= wall * 0.999 ? "all of it" : `${clock(view.from)} to ${clock(view.to)}`;
  redraw();
}
function zoom(factor, around = (view.from + view.to) / 2) {
  look(around - (around - view.from) * factor, around + (view.to - around) * factor);
}
const pan = (share) => look(view.from + share * (view.to - view.from), view.to + share * (view.to - view.from));

function toolbar() {
  const button = (text, label, onclick) => h("button", { type: "button", "aria-label": label, title: label, onclick }, text);
  const line = (dash, colour) => s("svg", { width: 22, height: 10, "aria-hidden": "true" }, s("line", { x1: 0, x2: 22, y1: 5, y2: 5, stroke: `var(--${colour})`, "stroke-width": 2.5, "stroke-dasharray": dash }));
  $("toolbar").append(button("−", "Zoom out", () => zoom(1.6)), button("+", "Zoom in", () => zoom(1 / 1.6)), button("‹", "Earlier", () => pan(-0.4)), button("›", "Later", () => pan(0.4)),
    button("↔", "Show all of it", () => look(0, wall)), h("span", { id: "window", class: "muted", "aria-live": "polite" }, "all of it"),
    h("span", { class: "hint" }, "Ctrl + wheel zooms, dragging moves"), h("span", { class: "spacer" }),
    h("span", { class: "key" }, line(null, "generate"), "being generated"), h("span", { class: "key" }, line("6 2", "tool0"), "in tools"),
    h("span", { class: "key" }, line("2 2", "ink"), "queueing"), h("span", { class: "key" }, line(null, "alarm"), "model idle"));
  addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const does = { "+": () => zoom(1 / 1.6), "=": () => zoom(1 / 1.6), "-": () => zoom(1.6), 0: () => look(0, wall) }[event.key];
    if (does) { does(); event.preventDefault(); }
  });
  moving($("load").firstChild);
  wheeling($("load"));
  wheeling($("lanes"));
}

/* Ctrl + wheel zooms around the pointer, a wheel sideways moves; everything inside `host` has time as its x. */
function wheeling(host) {
  const place = (event) => event.clientX - host.getBoundingClientRect().left;
  host.addEventListener("wheel", (event) => {
    const aside = event.shiftKey ? event.deltaY || event.deltaX : Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : 0;
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 250))), secondsAt(Math.max(GUTTER, place(event)), wide(host)));
    else if (aside) pan(aside / wide(host));
    else return;
    event.preventDefault();
  }, { passive: false });
}

/* Drag on a canvas whose x is time. */
function moving(canvas) {
  let grip = null;
  const place = (event) => event.clientX - canvas.getBoundingClientRect().left;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    grip = { x: event.clientX, from: view.from, to: view.to };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!grip || Math.abs(event.clientX - grip.x) < 3) return;
    canvas.classList.add("moving");
    const shift = ((grip.x - event.clientX) / (wide(canvas) - GUTTER - EDGE)) * (grip.to - grip.from);
    look(grip.from + shift, grip.to + shift);
  });
  const release = () => { grip = null; canvas.classList.remove("moving"); };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("dblclick", (event) => zoom(1 / 3, secondsAt(Math.max(GUTTER, place(event)), wide(canvas))));
}

function pointing(entry) {
  const { canvas, tree } = entry;
  moving(canvas);
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect(), row = Math.floor((event.clientY - box.top - MARGIN) / LANE), x = event.clientX - box.left;
    if (!tree.lanes[row]) { hide(); return; }
    show(x < GUTTER ? laneTip(tree.lanes[row]) : eventTip(tree, tree.lanes[row], hit(tree.lanes[row], x, wide(canvas))), event.clientX, event.clientY);
  });
  canvas.addEventListener("pointerleave", hide);
  canvas.addEventListener("focus", () => { if (canvas.matches(":focus-visible")) choose(entry, entry.chosen || { row: 0, at: 0 }); });
  canvas.addEventListener("blur", () => { entry.chosen = null; hide(); entry.draw(); });
  canvas.addEventListener("keydown", (event) => {
    const now = entry.chosen || { row: 0, at: 0 }, lane = tree.lanes[now.row];
    const beside = (row) => { const to = tree.lanes[row]; return to && { row, at: Math.max(0, nearest(to, lane.events[now.at] ? lane.events[now.at][1] : 0)) }; };
    const to = { ArrowUp: () => beside(now.row - 1), ArrowDown: () => beside(now.row + 1), ArrowLeft: () => ({ row: now.row, at: now.at - 1 }),
      ArrowRight: () => ({ row: now.row, at: now.at + 1 }), Home: () => ({ row: now.row, at: 0 }), End: () => ({ row: now.row, at: lane.events.length - 1 }) }[event.key];
    if (event.key === "Escape") { entry.chosen = null; hide(); entry.draw(); }
    if (!to || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const next = to();
    if (next && tree.lanes[next.row].events[next.at]) choose(entry, next);
  });
}
const nearest = (lane, moment) => lane.events.reduce((best, event, at) => Math.abs(event[1] - moment) < Math.abs((lane.events[best] || event)[1] - moment) ? at : best, 0);

/* Chooses an event by keyboard: brings it into view, outlines it and says it. */
function choose(entry, chosen) {
  const { canvas, tree } = entry, lane = tree.lanes[chosen.row], event = lane.events[chosen.at];
  entry.chosen = chosen;
  if (event && (event[1] + event[2] < view.from || event[1] > view.to)) look(event[1] - (view.to - view.from) / 2, event[1] + (view.to - view.from) / 2);
  const box = canvas.getBoundingClientRect(), covered = $("bar").getBoundingClientRect().bottom;
  let y = box.top + level(chosen.row);
  const off = y < covered + 20 ? y - covered - 40 : y > innerHeight - 60 ? y - innerHeight + 120 : 0;
  if (off) { scrollBy(0, off); y -= off; }
  entry.draw();
  const lines = eventTip(tree, lane, event);
  show(lines, box.left + Math.max(GUTTER, event ? across(Math.max(event[1], view.from), wide(canvas)) : 0), y);
  $("said").textContent = lines.map((line) => line.textContent).join(". ");
}

/* The event of a lane at x, the shortest if several are there. */
function hit(lane, x, width) {
  const inside = lane.events.filter(([, start, seconds]) => across(start, width) - 2 <= x && x <= across(start + seconds, width) + 2);
  return inside.sort((a, b) => a[2] - b[2])[0];
}

function laneTip(lane) {
  const [, word] = verdict(lane), origin = lane.origin === "branch" ? `branch of ${lane.parent}` : lane.origin;
  return [h("p", {}, h("b", {}, `Trajectory ${lane.number}`), ` · ${origin} · ${word}${known(lane.reward) ? `, reward ${fixed(lane.reward)}` : ""}`),
    h("p", {}, `${clock(lane.died - lane.born)}, from ${clock(lane.born)} to ${clock(lane.died)}${lane.outcome ? ` · ${lane.outcome}` : ""}`),
    lane.error ? h("p", {}, lane.error) : null].filter(Boolean);
}
function eventTip(tree, lane, event) {
  if (!event) return laneTip(lane);
  const [kind, start, seconds, waited, name, status, tokens, cached, context, span] = event;
  const said = kind === "tool" ? name || "tool" : seconds <= waited ? WAIT[kind] || kind : WORK[kind] || kind;
  const worked = seconds - waited, lines = [
    h("p", {}, h("b", {}, said), ` · trajectory ${lane.number}${lane.depth ? `, branch of ${lane.parent}` : ""}${kind === "retry" && name ? ` · ${name}` : ""}${status ? ` · ${status}` : ""}`),
    h("p", {}, `${clock(seconds)}, from ${clock(start)} to ${clock(start + seconds)}${waited && worked > 0 ? `; first ${clock(waited)} ${WAIT[kind] || "waiting"}` : ""}`)];
  if (kind === "generate") {
    lines.push(h("p", {}, `${many(tokens, "token")}${worked > 0 ? `, ${num(Math.round(tokens / worked))} a second` : ""}${context ? `; context ${num(context)}, ${percent(cached / context)} from cache` : ""}`));
  }
  if (known(span)) lines.push(h("p", { class: "turn", dir: "auto" }, tree.texts[span] || "(empty)"));
  return lines;
}

function show(lines, x, y) {
  const tip = $("tip");
  tip.replaceChildren(...lines);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(12, Math.min(x + 14, innerWidth - width - 12))}px`;
  tip.style.top = `${y + 18 + height > innerHeight - 8 ? Math.max(8, y - height - 14) : y + 18}px`;
}
function hide() { $("tip").hidden = true; }

/* ---- go ------------------------------------------------------------------------------------------------------ */

for (const part of [lanes, heading, summary, loadChart, toolbar]) {
  try {
    part();
  } catch (error) {
    document.documentElement.dataset.broken = `${part.name}: ${error.message}`;
    $("notes").append(h("p", { class: "note alarm" }, `A part of this page could not be drawn (${part.name}: ${error.message}).`));
  }
}
picture(() => draws.forEach((draw) => draw()));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readPalette(); redraw(); });
placed = true;
redraws.forEach((draw) => draw());
document.documentElement.dataset.ready = "yes";
