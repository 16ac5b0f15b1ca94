/* ---- a conversation: thoughts, calls, results and answers ------------------------------------------------- */

const NAMES = { thought: "thought", call: "call", answer: "answer", text: "text", result: "result" };
const reading = { heat: false, raw: false };
const HEATS = 8;

/* The text of a part, coloured by token where the tokens' lengths are known. */
function heated(span, start, end, most) {
  const nodes = [];
  let at = 0, nats = 0, unfinished = false;
  span.widths.forEach((width, token) => {
    const entropy = span.entropies[token];
    nats = Math.max(unfinished ? nats : 0, known(entropy) ? entropy / 1000 : 0);
    unfinished = !width;  // several tokens of one character: the largest entropy of them
    const from = Math.max(start, at), to = Math.min(end, at + width);
    at += width;
    if (from >= to) return;
    const level = Math.min(HEATS, Math.floor(HEATS * nats / most));
    const text = span.text.slice(from, to);
    nodes.push(level ? h("span", { class: `heat heat-${level}`, title: `entropy ${num(nats)} nats` }, text) : text);
  });
  return nodes;
}
const textBox = (kind, ...content) => h("pre", { class: `text said-${kind}`, dir: "auto" }, ...content);

function turn(span, tree) {
  const parts = !reading.raw && span.parts ? span.parts : [["text", "", 0, span.text.length]];
  const heat = reading.heat && (span.entropies || []).length;
  const shown = parts.length ? parts : [["text", "", 0, span.text.length]];
  return [
    ...helped(span).filter((mark) => mark.outcome !== "abandoned").map((mark) => h("p", { class: "hint helped-turn" }, h("b", {}, helpedText(mark)), mark.detail ? ` · ${clip(plain(mark.detail), 300)}` : "")),
    ...shown.map(([kind, label, start, end], number) => h("section", { class: `part ${kind}`, "aria-label": `${NAMES[kind]}, turn ${span.turn}` },
      h("h4", {}, h("span", { class: "kind" }, NAMES[kind]), label ? h("bdi", { class: "tool-name" }, ` ${label}`) : null,
        number ? null : h("span", { class: "about" }, [`turn ${span.turn}`, `${num(span.n)} tokens`, span.entropies ? `entropy ${num(average(span.entropies), 2)}` : null, span.finish === "length" ? "cut at the token limit" : null].filter(Boolean).join(" · "))),
      textBox(kind, heat && span.widths ? heated(span, start, end, tree.most) : span.text.slice(start, end) || "(empty)"))),
    heat && !span.widths ? spark(span) : null,
  ];
}
function result(span) {
  const status = span.tool ? plain(span.tool.status) : "", bad = status && status !== "ok";
  return h("section", { class: `part result${bad ? " bad" : ""}`, "aria-label": `result after turn ${span.turn}` },
    h("h4", {}, h("span", { class: "kind" }, "result"), h("bdi", { class: "tool-name" }, ` ${toolName(span)}`),
      h("span", { class: "about" }, [bad ? `! ${status}` : status, `${num(span.n)} tokens`, span.tool && known(span.tool.seconds) ? `${num(span.tool.seconds)} s` : null].filter(Boolean).join(" · "))),
    textBox("result", (span.inner && !reading.raw ? span.text.slice(...span.inner) : span.text) || "(empty)"),
    imagesOf(span).map((url) => h("img", { class: "seen", src: url, alt: "picture that was shown to the model" })));
}
const imagesOf = (span) => (span.tool && Array.isArray(span.tool.images) ? span.tool.images : []).filter((url) => typeof url === "string" && url.startsWith("data:image/"));

/* What was taken back, or written longer before, where the conversation left it. */
function abandonedAt(tree, next) {
  // other conversations may have left turns at the same place
  const tools = helped(next).filter((mark) => mark.outcome === "worked" || mark.outcome === "rewritten").map((mark) => mark.tool);
  const first = tree.spans.filter((span) => isAbandoned(span) && span.parent === next.parent && helped(span).some((mark) => mark.outcome === "abandoned" && tools.includes(mark.tool)));
  const below = (span) => [span, ...span.children.filter(isAbandoned).flatMap(below)];
  return first.map((span) => h("details", { class: "abandoned-part" },
    h("summary", {}, "Abandoned ", h("span", { class: "muted" }, `by the ${plain(helped(span).find((mark) => mark.outcome === "abandoned").tool)}`)),
    below(span).flatMap((one) => one.kind === "model" ? turn(one, tree) : [result(one)])));
}
const partsOf = (tree, span) => [...(span.kind === "model" ? abandonedAt(tree, span) : []), ...(span.kind === "model" ? turn(span, tree) : [result(span)])];

function conversation(tree, number) {
  const trajectory = tree.trajectories[number];
  if (!trajectory) return [nothing("This episode has no trajectory in the trace.")];
  const said = trajectory.path.filter((span) => span.kind === "model"), unmeasured = reading.heat && said.length && !said.some((span) => span.entropies);
  const heatless = reading.heat && said.some((span) => span.entropies && !span.widths);
  return [
    h("details", { class: "prompt-part" }, h("summary", {}, "Prompt ", h("span", { class: "muted" }, `${num(tree.prompt_tokens)} tokens`)), h("pre", { class: "text", dir: "auto" }, tree.prompt || "(empty)")),
    unmeasured ? h("p", { class: "hint" }, "No entropies: the endpoint gave none.") : null,
    heatless ? h("p", { class: "hint" }, "Which token wrote which characters is not known here (no tokenizer: give --tokenizer FOLDER), so entropies are drawn below the turns.") : null,
    reading.heat && said.some((span) => span.entropies && span.widths) ? h("p", { class: "hint heat-key" }, "entropy 0 ", Array.from({ length: HEATS }, (_, at) => h("span", { class: `heat heat-${at + 1}` }, " ")), ` ${num(tree.most, 2)} nats and more`) : null,
    ...trajectory.path.flatMap((span) => partsOf(tree, span)),
    trajectory.error ? h("p", { class: "note alarm" }, plain(trajectory.error)) : null,
  ].filter(Boolean);
}
