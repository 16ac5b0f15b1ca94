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
  drawAll(tree);
}

function drawAll(tree) {
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
  const left = tree.spans.filter(isAbandoned).reduce((sum, span) => sum + span.n, 0);
  const stats = [
    `${many(all.length, "trajectory", "trajectories")}: ${origins}`,
    decided ? `branched at ${num(points)} of ${many(decided, "tool result")}` : null,
    tree.contrasts.length ? `branches differ in reward at ${num(tree.contrasts.filter(Boolean).length)} of ${many(tree.contrasts.length, "fork")}` : null,
    `${num(tree.unique - left)} tokens with shared ones once, ${num(tree.copied)} if copied out: sharing ×${fixed(tree.copied / Math.max(1, tree.unique - left))}`,
    left ? `${num(left)} tokens abandoned` : null,
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
      if (known(span.decision.delta) && (span.decision.entropy || span.decision.delta) && !(labelled[span.row] > point - 24)) {
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
  const classes = [model ? "model" : "environment", bright ? "" : "dim", chosen ? "chosen" : "", bad ? "bad" : "", span.finish === "length" ? "cut" : "", isAbandoned(span) ? "abandoned" : ""];
  const said = model ? `Model, turn ${span.turn}, ${num(span.n)} tokens${span.entropies ? `, mean entropy ${entropyOf(span.entropies)}` : ""}`
    : `${toolName(span)}${span.tool ? ` (${plain(span.tool.status)})` : ""}, ${num(span.n)} tokens`;
  const helps = helped(span).length ? `, ${helped(span).map(helpedText).join(", ")}` : "";
  const label = `${said}${helps}${span.through.length > 1 ? `, shared by ${num(span.through.length)} trajectories` : ""}`;
  const short = model ? null : clip((bad ? "! " : "") + toolName(span), Math.floor((span.w - 12) / 6.6));
  if (span.kind === "fold") classes.push("fold");
  return s("g", node("span", span.index, label, classes.join(" ")), s("title", {}, label),
    s("path", { class: "body", d: model ? pebble(span.x, y, span.w) : hexagon(span.x, y, span.w) }),
    model ? s("path", { class: "profile", d: profile(span.entropies || [], span.x + 3, y + 3, span.w - 6, BAR - 6, tree.most) })
      : s("text", { x: span.x + span.w / 2, y: y + BAR / 2 + 4, "text-anchor": "middle" }, span.w >= 44 ? short : bad ? "!" : ""),
    model && span.finish === "length" ? s("path", { class: "cut-mark", d: `M${span.x + span.w - 5},${y - 3}v${BAR + 6}` }) : null,
    model && helped(span).some((mark) => mark.outcome !== "abandoned") ? s("text", { class: "helped", x: span.x + 7, y: y - 4 }, helpSign(span)) : null);
}

/* What tools at inference time did to a turn: D debugger, B backtracer, R refiner; small letters where they failed. */
const helped = (span) => span.interventions || [];
const isAbandoned = (span) => helped(span).some((mark) => mark.outcome === "abandoned");
const helpedText = (mark) => `${plain(mark.tool)}: ${plain(mark.outcome)}`;
const helpLetter = (mark) => mark.outcome === "failed" ? plain(mark.tool)[0] : plain(mark.tool)[0].toUpperCase();
const helpSign = (span) => [...new Set(helped(span).filter((mark) => mark.outcome !== "abandoned").map(helpLetter))].join(" ");

function fork(span, x, bright) {
  const decision = span.decision, y = middle(span.row), grew = decision.branches > 0;
  const wanted = !grew && refused(decision);
  return s("g", { class: `decision${grew ? " grew" : ""}${bright ? "" : " dim"}` },
    s("title", {}, explain(decision, trees[view.tree]).join(" ")), s("path", { d: diamond(x, y, grew ? 8 : 5) }),
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
  if (!trajectory) return h("li", {}, h("span", { class: "leaf muted" }, "abandoned"));
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
    entry("branched: copies made; above, the rise of the entropy", s("g", { class: "decision grew" }, s("path", { d: diamond(17, 12, 9) }), s("text", { x: 17, y: 16, "text-anchor": "middle" }, "1"))),
    entry("did not branch", s("g", { class: "decision" }, s("path", { d: diamond(17, 12, 6) }))),
    entry("would have; no budget or quota left", s("g", { class: "decision" }, s("path", { d: diamond(17, 12, 6) }), s("path", { class: "slash", d: "M10,19L24,5" }))),
    entry("answered right", s("g", { class: "leaf-mark right" }, s("path", { class: "glyph", d: outcomeShape({ outcome: "answered" }, 17, 12) }))),
    entry("wrong", s("g", { class: "leaf-mark wrong" }, s("path", { class: "glyph", d: outcomeShape({ outcome: "answered" }, 17, 12) }))),
    entry("no answer or cut", s("g", { class: "leaf-mark wrong" }, s("path", { class: "glyph", d: outcomeShape({ outcome: "truncated" }, 17, 12) }))),
    entry("failed: not scored", s("g", { class: "leaf-mark void" }, s("path", { class: "glyph", d: outcomeShape({ outcome: "failed" }, 17, 12) }))),
    tree.helped ? entry("abandoned: taken back, or shortened since", s("g", { class: "node model abandoned" }, s("path", { class: "body", d: pebble(0, 0, 34) }))) : null,
    tree.helped ? h("li", {}, "D debugger, B backtracer, R refiner; small where it failed") : null,
    h("li", { class: "keys" }, "← → other trees; inside the tree the arrows walk, Enter opens"),
  ].filter(Boolean);
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
