/* ---- one task, opened ------------------------------------------------------------------------------------- */

const shown = { sides: [], at: [], tab: "conversation", asked: 0 };

function openDetail() {
  const entry = listing.items[listing.at];
  if (!entry) return;
  shown.sides = want.mode === "pairs" ? entry.sides : [entry];
  shown.at = shown.sides.map(() => 0);
  if (!$("detail").open) $("detail").showModal();
  drawDetail();
  $("detail").scrollTop = 0;
}
function step(way) {
  const to = listing.at + way;
  if (to < 0 || to >= listing.items.length) return;
  moveTo(to);
  openDetail();
}
function closeDetail() { $("detail").close(); }

const toggle = (name, label, key) => h("button", { type: "button", class: "word", "aria-pressed": String(reading[name]), title: `key ${key}`, onclick: () => { reading[name] = !reading[name]; drawDetail(); } }, label);

function drawDetail() {
  const task = (shown.sides[0] || shown.sides[1]).task, focus = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.hold : null;
  const tab = (name, label) => h("button", { type: "button", class: "word", "data-hold": name, "aria-pressed": String(shown.tab === name), onclick: () => { shown.tab = name; drawDetail(); } }, label);
  const bar = h("div", { class: "bar toolbar", role: "toolbar", "aria-label": "Task" },
    h("button", { type: "button", "aria-label": "Previous task (k)", "data-hold": "back", disabled: listing.at === 0, onclick: () => step(-1) }, "‹"),
    h("button", { type: "button", "aria-label": "Next task (j)", "data-hold": "next", disabled: listing.at === listing.items.length - 1, onclick: () => step(1) }, "›"),
    h("span", { class: "muted" }, `${num(listing.at + 1)} of ${num(listing.items.length)}`),
    h("div", { class: "segmented", role: "group", "aria-label": "Show" }, tab("conversation", "Conversation"), tab("tree", "Tree")),
    shown.tab === "conversation" ? [toggle("heat", "Entropy", "h"), toggle("raw", "Raw", "r")] : null,
    h("button", { type: "button", class: "word close", "data-hold": "close", onclick: closeDetail }, "Close"));
  const columns = shown.sides.map((side, number) => sideBox(side, number));
  $("detail").replaceChildren(bar, h("div", { class: "detail-head" },
    h("p", { class: "question", dir: "auto", tabindex: 0 }, plain(task.question || task.id)),
    h("p", { class: "gold" }, "gold ", task.answers.length ? task.answers.map((answer) => [h("bdi", { class: "chip" }, plain(answer)), " "]) : "–",
      h("span", { class: "muted" }, [task.env, task.id, task.level ? `level ${task.level}` : ""].filter(Boolean).map((text) => h("bdi", { class: "mark" }, plain(text)))))),
  h("div", { class: `columns columns-${columns.length}` }, columns));
  const again = focus && $("detail").querySelector(`[data-hold="${CSS.escape(focus)}"]:not(:disabled)`);
  (again || $("detail").querySelector('[data-hold="close"]')).focus({ preventScroll: true });
  fillSides();
}

function sideBox(side, number) {
  if (!side) return h("div", { class: "column" }, nothing("This run does not have this task."));
  const episode = side.episodes[shown.at[number]];
  const pick = (at) => { shown.at[number] = at; drawDetail(); };
  const picker = side.episodes.length > 1 ? h("div", { class: "picker", role: "group", "aria-label": "Samples" }, side.episodes.map((one, at) => {
    const [mark, word] = SIGNS[one.right === null ? "void" : one.right ? "right" : "wrong"];
    return h("button", { type: "button", "data-hold": `pick-${number}-${at}`, class: one.right === null ? "void" : one.right ? "right" : "wrong", "aria-pressed": String(at === shown.at[number]), "aria-label": `Sample ${at + 1}: ${word}${one.counted ? "" : ", in no score"}`, onclick: () => pick(at) }, `${at + 1} `, h("span", { class: "sign" }, mark));
  })) : null;
  const [mark, word] = SIGNS[episode.right === null ? "void" : episode.right ? "right" : "wrong"];
  return h("div", { class: "column" },
    h("h3", {}, h("bdi", {}, sideName(side)), " ", h("span", { class: `tag ${episode.right === null ? "void" : episode.right ? "right" : "wrong"}` }, `${mark} ${word}`)), picker,
    pairs([["score", fixed(episode.score)], ["reward", known(episode.reward) ? fixed(episode.reward) : null], ["answer", episode.answer === null ? "–" : plain(episode.answer)], ["outcome", episode.outcome],
      ["calls", episode.calls.map(([tool, count]) => `${tool} ${count}`).join(", ") || "none"], ["turns", num(episode.turns)], ["tokens", num(episode.tokens)], ["seconds", num(episode.seconds)],
      ["attempt", episode.unit.attempt > 1 ? num(episode.unit.attempt) : null], ["broke", episode.right === null ? plain(episode.cause) : null]]),
    h("div", { class: "said", "data-side": number }, h("p", { class: "hint" }, "Loading …")));
}

const treeless = () => nothing(data.served ? "The trace no longer has this episode." : "This conversation is not in the page. `arpo view RUN --serve` shows every one; `--trees all` puts them into the file.");
async function fillSides() {
  shown.asked += 1;
  const mine = shown.asked;
  await Promise.all(shown.sides.map(async (side, number) => {
    if (!side) return;
    const episode = side.episodes[shown.at[number]];
    let content;
    try {
      const tree = await loadTree(episode.unit);
      content = tree ? () => shown.tab === "tree" ? null : conversation(prepare(tree), episode.number) : () => [treeless()];
      if (mine !== shown.asked) return;
      const box = $("detail").querySelector(`[data-side="${number}"]`);
      if (tree && shown.tab === "tree") drawTreeIn(box, tree, number);
      else box.replaceChildren(...content());
    } catch (error) {
      if (mine === shown.asked) $("detail").querySelector(`[data-side="${number}"]`).replaceChildren(h("p", { class: "note alarm" }, `This conversation cannot be shown: ${error.message}`));
    }
  }));
  if (mine === shown.asked) document.documentElement.dataset.shown = String(mine);
}

/* The drawing of the training report. It holds one tree, so that of two sides the first is drawn, or the chosen one. */
function drawTreeIn(box, tree, number) {
  if (shown.sides.length > 1 && number !== (shown.treeSide || 0)) {
    box.replaceChildren(h("button", { type: "button", class: "word", onclick: () => { shown.treeSide = number; drawDetail(); } }, "Draw this tree"));
    return;
  }
  parts.head = h("div", { class: "tree-head" });
  parts.box = h("div", { class: "tree-box", tabindex: 0, role: "group" });
  parts.leaves = h("ol", { class: "leaves", "aria-label": "Trajectories" });
  parts.key = h("ul", { class: "key-list" });
  parts.panel = h("aside", { class: "panel", "aria-label": "Details", tabindex: -1 });
  box.replaceChildren(parts.head, h("div", { class: "tree-layout" }, h("div", { class: "tree-main" }, h("div", { class: "tree-frame" }, parts.box, parts.leaves), parts.key), parts.panel));
  trees[0] = tree;
  view.tree = 0;
  drawAll(prepare(tree));
  const stats = parts.head.querySelector(".stats");
  parts.head.replaceChildren(stats);  // the question and the gold answer stand above
}
