/* ---- trees as lanes ------------------------------------------------------------------------------------------ */

const LANE = 18, THICK = 12, THIN = 6, MARGIN = 6;
const draws = [];
const boards = [];

function lanes() {
  readPalette();
  data.trees.forEach((tree, index) => $("lanes").append(board(tree, index)));
}

function board(tree, index) {
  const canvas = h("canvas", { tabindex: 0, role: "application", "aria-label": `${many(tree.lanes.length, "trajectory", "trajectories")}. Arrow keys: up and down choose a lane, left and right an event; plus and minus zoom.` });
  const entry = { tree, index, canvas, seen: true, rows: new Map() };
  tree.lanes.forEach((lane, row) => {
    entry.rows.set(lane.number, row);
    lane.born = Math.min(wall, ...lane.events.map((event) => event[1]));
    lane.died = Math.max(0, ...lane.events.map((event) => event[1] + event[2]));
  });
  boards.push(entry);
  entry.draw = () => { if (entry.seen && wide(canvas) > 1) drawLanes(entry); };
  draws.push(entry.draw);
  canvas.style.height = `${tree.lanes.length * LANE + 2 * MARGIN}px`;
  new IntersectionObserver((changes) => { entry.seen = changes[changes.length - 1].isIntersecting; entry.draw(); }, { rootMargin: "300px" }).observe(canvas);
  pointing(entry);
  return h("details", { class: "tree-lanes", open: true },
    h("summary", {}, h("h2", {}, `Tree ${plain(tree.group ?? index)}`, h("bdi", { dir: "auto" }, tree.question)), h("p", {}, aboutTree(tree)), shareBar(tree.use.shares, 8)), canvas);
}

function aboutTree(tree) {
  const count = (origin) => tree.lanes.filter((lane) => lane.origin === origin).length, rewards = tree.lanes.map((lane) => lane.reward).filter(known);
  const origins = [["root", "roots"], ["branch", "branches"], ["top-up", "top-ups"]].filter(([one]) => count(one)).map(([one, more]) => many(count(one), one, more));
  const shares = Object.entries(tree.use.shares).filter(([, share]) => share >= 0.01).slice(0, 5).map(([name, share]) => `${activity(name)[0]} ${percent(share)}`);
  return [origins.join(", "), `over after ${clock(Math.max(...tree.lanes.map((lane) => lane.died)), 3)}`, ...shares, rewards.length ? `reward ${fixed(mean(rewards))}` : "no reward"].join(" · ");
}

function drawLanes(entry) {
  const { tree, canvas } = entry, height = tree.lanes.length * LANE + 2 * MARGIN;
  const [ink, width, ratio] = sheet(canvas, height);
  ink.fillStyle = palette.faint;
  for (const mark of marks(width)) ink.fillRect(across(mark, width), 0, 1, height);
  tree.lanes.forEach((lane, row) => label(ink, lane, row, entry));
  ink.save();
  ink.beginPath();
  ink.rect(GUTTER, 0, width - GUTTER, height);
  ink.clip();
  tree.lanes.forEach((lane, row) => drawLane(ink, lane, row, width, ratio));
  tree.lanes.forEach((lane, row) => forkLine(ink, lane, row, entry, width));
  if (entry.chosen) outline(ink, entry, width);
  ink.restore();
}
const level = (row) => MARGIN + row * LANE + LANE / 2;

function verdict(lane) {
  if (!known(lane.reward)) return ["!", "not scored", "alarm"];
  return (known(lane.accuracy) ? lane.accuracy > 0 : lane.reward > 0) ? ["✓", "right", "right"] : ["✗", "wrong", "soft"];
}
function label(ink, lane, row, entry) {
  const y = level(row), [sign, , colour] = verdict(lane), indent = 8 + 9 * Math.min(lane.depth, 3), focused = entry.chosen && entry.chosen.row === row;
  if (focused) { ink.fillStyle = palette.line; ink.fillRect(0, y - LANE / 2, GUTTER, LANE); }
  ink.textAlign = "left";
  ink.fillStyle = palette.ink;
  ink.font = `12px ${palette.sans}`;
  ink.fillText(lane.number, indent + (lane.depth ? 9 : 0), y);
  if (lane.depth) {
    ink.strokeStyle = palette.fork;
    ink.lineWidth = 1.5;
    ink.beginPath();
    ink.moveTo(indent, y - 7);
    ink.lineTo(indent, y);
    ink.lineTo(indent + 6, y);
    ink.stroke();
  }
  ink.textAlign = "right";
  ink.fillStyle = palette[colour];
  ink.fillText(sign, GUTTER - 8, y);
}

function drawLane(ink, lane, row, width, ratio) {
  const y = level(row);
  ink.fillStyle = palette.line;
  ink.fillRect(across(lane.born, width), y - 0.5, across(lane.died, width) - across(lane.born, width), 1);
  for (const [kind, start, seconds, waited, name, status] of lane.events) {
    const from = across(start, width), to = across(start + seconds, width), worked = across(start + waited, width);
    if (to < GUTTER || from > width) continue;
    const colour = hue(kind, name);
    if (waited > 0.001) {
      ink.fillStyle = hatch(colour, ratio);
      ink.setTransform(1, 0, 0, 1, 0, 0); // the pattern is in device pixels
      ink.fillRect(from * ratio, (y - THIN / 2) * ratio, Math.max(1, (worked - from) * ratio), THIN * ratio);
      ink.setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    if (seconds <= waited && waited > 0) continue;
    ink.fillStyle = palette[colour];
    const bar = Math.max(1, to - worked - (to - worked > 3 ? 0.6 : 0));
    if (kind === "fork") { ink.fillRect(worked, y - THICK / 2 - 2, bar, 4); continue; }
    ink.fillRect(worked, y - THICK / 2, bar, THICK);
    if (kind === "tool") named(ink, Math.max(worked, GUTTER), y, Math.min(to, width) - Math.max(worked, GUTTER), name, status, colour);
  }
}
/* Writes a tool's name into its bar where there is room; what went wrong has a mark in any case. */
function named(ink, x, y, room, name, status, colour) {
  const text = `${status && status !== "ok" ? "! " : ""}${name}`;
  ink.font = `600 11px ${palette.sans}`;
  ink.textAlign = "left";
  ink.fillStyle = palette[`on-${colour}`];
  const fits = ink.measureText(text).width + 8 <= room ? text : text[0] === "!" && room >= 9 ? "!" : "";
  if (fits) ink.fillText(fits, x + 4, y + 0.5);
}

/* A branch hangs on the lane it was forked off, at the moment it began. */
function forkLine(ink, lane, row, entry, width) {
  if (lane.origin !== "branch" || !entry.rows.has(lane.parent)) return;
  const x = across(lane.born, width), from = level(entry.rows.get(lane.parent)), to = level(row);
  if (x < GUTTER || x > width) return;
  ink.strokeStyle = palette.fork;
  ink.fillStyle = palette.fork;
  ink.lineWidth = 1.25;
  ink.beginPath();
  ink.moveTo(x, from);
  ink.lineTo(x, to);
  ink.stroke();
  ink.beginPath();
  ink.moveTo(x - 4.5, from);
  ink.lineTo(x, from - 4.5);
  ink.lineTo(x + 4.5, from);
  ink.lineTo(x, from + 4.5);
  ink.fill();
  ink.beginPath();
  ink.arc(x, to, 2.5, 0, 7);
  ink.fill();
}

function outline(ink, entry, width) {
  const { row, at } = entry.chosen, event = entry.tree.lanes[row].events[at];
  if (!event) return;
  const from = across(event[1], width), to = across(event[1] + event[2], width);
  ink.strokeStyle = palette.ink;
  ink.lineWidth = 2;
  ink.strokeRect(from - 1, level(row) - THICK / 2 - 1, Math.max(3, to - from + 2), THICK + 2);
}
