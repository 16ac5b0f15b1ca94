/* ---- trees: the panel ------------------------------------------------------------------------------------- */

const average = (values) => { const usable = (values || []).filter(known); return usable.length ? mean(usable) / 1000 : null; };
/* null where the backend gave none, as endpoints do */
const entropyOf = (values, digits) => average(values) === null ? null : `${num(average(values), digits)} nats`;
const toolName = (span) => span.tool && span.tool.name ? String(span.tool.name) : "environment";
const FINISHES = { stop: "at a stop string", eos: "end of text", length: "cut at the token limit" };
const pairs = (entries) => h("dl", { class: "pairs" }, entries.filter(([, value]) => value !== null && value !== undefined && value !== "")
  .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, h("bdi", {}, value)))));
const prose = (text) => h("pre", { class: "text", dir: "auto", tabindex: 0 }, text || "(empty)");

function drawPanel() {
  const tree = trees[view.tree];
  const drawn = view.kind === "leaf" ? leafPanel(tree, tree.trajectories[view.at])
    : view.kind === "span" ? spanPanel(tree, tree.spans[view.at]) : promptPanel(tree);
  const link = `#tree=${view.tree}${view.kind === "prompt" ? "" : `&${view.kind}=${view.at}`}`;
  const permalink = parts.step ? [h("p", { class: "permalink" }, h("a", { href: link }, "link to this view"))] : [];
  parts.panel.replaceChildren(...drawn, ...permalink);
  parts.panel.scrollTop = 0;
}

function promptPanel(tree) {
  return [h("h3", {}, "Prompt"), pairs([["tokens", num(tree.prompt_tokens)], ["task", plain(tree.task.id)], ["source", tree.task.source || null], ["seed", known(tree.seed) ? num(tree.seed) : null]]),
    h("p", { class: "hint" }, "Click a span to read it, or a trajectory on the right of the tree to read it from start to end."), prose(tree.prompt)];
}

function sharedBy(span) {
  const count = span.through.length;
  return count > 1 ? `${num(count)} trajectories (${span.through.join(", ")})` : null;
}

function spanPanel(tree, span) {
  const model = span.kind === "model";
  const surprise = average(span.logprobs);
  const rows = model ? [
    ["tokens", num(span.n)], ["ended", FINISHES[span.finish] || span.finish], ["mean entropy", entropyOf(span.entropies)],
    ["first 20 tokens", entropyOf((span.entropies || []).slice(0, 20))],
    ["mean log-probability", surprise === null ? null : num(surprise)], ["shared by", sharedBy(span)],
  ] : [["tokens", num(span.n)], ["tool", span.tool ? `${toolName(span)}${span.kind === "fold" ? ", a new prompt" : ""}` : null], ["status", span.tool ? plain(span.tool.status) : null],
    ["took", span.tool && known(span.tool.seconds) ? `${num(span.tool.seconds)} s` : null], ["shared by", sharedBy(span)]];
  return [
    h("h3", {}, h("span", { class: `tag ${model ? "model" : "environment"}` }, model ? "model" : "environment"), model ? ` turn ${span.turn}` : ` after turn ${span.turn}`),
    pairs(rows), helpBox(span), model && span.n > 1 && span.entropies ? spark(span) : null, span.decision ? decisionBox(span.decision, tree) : null, prose(span.text),
  ].filter(Boolean);
}

const helpBox = (span) => helped(span).length ? h("ul", { class: "help-box" }, helped(span).map((mark) =>
  h("li", {}, h("b", {}, helpedText(mark)), mark.detail ? h("pre", { class: "text", dir: "auto" }, plain(mark.detail)) : null))) : null;

function spark(span) {
  const width = 360, height = 74, left = 26, usable = (span.entropies || []).filter(known).map((value) => value / 1000);
  const surprises = (span.logprobs || []).map((value) => known(value) ? -value / 1000 : null);
  const most = Math.max(0.1, ...usable, ...surprises.filter(known)), step = (width - left) / Math.max(1, span.n);
  const y = (value) => 6 + (1 - value / most) * (height - 12);
  return h("figure", { class: "spark" },
    s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Entropy of each token: mean ${num(average(span.entropies))}, most ${num(Math.max(0, ...usable))} nats` },
      s("line", { class: "rule", x1: left, x2: width, y1: y(most), y2: y(most) }), s("line", { class: "axis", x1: left, x2: width, y1: y(0), y2: y(0) }),
      s("text", { class: "tick", x: left - 5, y: y(most) + 5, "text-anchor": "end" }, num(most, 2)), s("text", { class: "tick", x: left - 5, y: y(0) + 3, "text-anchor": "end" }, "0"),
      s("path", { class: "profile", d: profile(span.entropies || [], left, y(most), width - left, y(0) - y(most), most) }),
      span.n > 20 ? s("line", { class: "window", x1: left + 20 * step, x2: left + 20 * step, y1: 2, y2: height - 4 }) : null,
      surprises.map((value, index) => known(value) ? s("circle", { class: "surprise", cx: left + (index + 0.5) * step, cy: y(value), r: Math.min(2, Math.max(0.8, step / 3)) }) : null)),
    h("figcaption", {}, h("span", { class: "swatch profile" }), "entropy of each token, in nats  ", h("span", { class: "dot surprise" }), " surprise of the one drawn"));
}

const REFUSALS = ["budget spent", "quota of the root used", "fork failed"];
const refused = (decision) => REFUSALS.some((reason) => String(decision.reason).startsWith(reason));

function explain(decision, tree) {
  const rose = decision.delta >= 0 ? "above" : "below", copies = decision.branches;
  const passed = decision.score > decision.threshold;
  const unit = known(tree.entropy_unit) ? `${num(tree.entropy_unit)} nats a token` : "ln V";
  const score = ["drawn", "not drawn"].includes(decision.reason) ? `Drawn by lot: ${num(decision.score, 4)}, compared with ${num(decision.threshold)}.`
    : refused(decision) && !passed ? null : `Branch score P = ${num(decision.score, 4)}, ${passed ? "above" : "not above"} the threshold τ = ${num(decision.threshold)}.`;
  return [
    decision.entropy || decision.delta ? `The entropy of the first tokens after this result was ${num(decision.entropy)} (in units of ${unit}), ${num(Math.abs(decision.delta))} ${rose} the first turn.` : null,
    score,
    `${copies ? `So ${many(copies, "copy", "copies")} of the episode ${copies === 1 ? "was" : "were"} made` : "No branch"}: ${plain(decision.reason)}.`,
  ].filter(Boolean);
}
const decisionBox = (decision, tree) => h("div", { class: `decision-box${decision.branches ? " grew" : ""}` },
  h("h4", {}, decision.branches ? "Branched here" : "Did not branch"), explain(decision, tree).map((line) => h("p", {}, line)));

function leafPanel(tree, trajectory) {
  const [sign, word] = VERDICTS[verdict(trajectory)];
  const components = Object.entries(trajectory.components || {}).map(([name, value]) => `${name} ${fixed(value)}`).join(", ");
  const tokens = trajectory.path.reduce((sum, span) => sum + span.n, 0);
  return [
    h("h3", {}, `Trajectory ${trajectory.number} `, h("span", { class: `tag ${verdict(trajectory)}` }, `${sign} ${word}`)),
    pairs([["reward", fixed(trajectory.reward)], ["made of", components || null], ["outcome", trajectory.outcome], ["began as", originOf(trajectory)],
      ["answer", trajectory.answer === null || trajectory.answer === undefined ? "–" : plain(trajectory.answer)], ["gold", [].concat(tree.task.answers ?? []).map(plain).join(" · ")],
      ["tool calls", num(trajectory.tool_calls)], ["tokens", num(tokens)]]),
    trajectory.error ? h("p", { class: "note alarm" }, trajectory.error) : null,
    h("ol", { class: "transcript" }, trajectory.path.map((span) => transcriptPart(span))),
  ].filter(Boolean);
}

function transcriptPart(span) {
  const model = span.kind === "model";
  const about = [`${num(span.n)} tokens`, model ? span.entropies && `entropy ${num(average(span.entropies), 2)}` : span.tool ? plain(span.tool.status) : null,
    span.through.length > 1 ? `shared by ${num(span.through.length)}` : null, span.decision && span.decision.branches ? "branched after this" : null];
  return h("li", { class: model ? "model" : "environment" },
    h("button", { type: "button", class: "part-head", onclick: () => select("span", span.index) },
      h("b", {}, model ? `model, turn ${span.turn}` : toolName(span)), h("span", {}, about.filter(Boolean).join(" · "))),
    h("pre", { class: "text", dir: "auto" }, span.text || "(empty)"));
}
