/* ---- trees: layout ---------------------------------------------------------------------------------------- */

const ROW = 42, BAR = 24, TOP = 20, PROMPT = 20, LEAST = { model: 30, environment: 34 }, GAP = 10, FORK = 30;

/* Adds to a tree what drawing needs: children, trajectories through each span, turns, rows. */
function prepare(tree) {
  if (tree.items) return tree;
  tree.spans.forEach((span, index) => Object.assign(span, { index, children: [], through: [], ends: [], turn: 0 }));
  tree.ends = [];
  tree.spans.forEach((span) => {
    const parent = tree.spans[span.parent];
    if (parent) parent.children.push(span);
    span.turn = (parent ? parent.turn : 0) + (span.kind === "model" ? 1 : 0);
  });
  tree.trajectories.forEach((trajectory, number) => {
    trajectory.number = number;
    trajectory.path = [];
    for (let span = tree.spans[trajectory.leaf]; span; span = tree.spans[span.parent]) { span.through.push(number); trajectory.path.unshift(span); }
    (tree.spans[trajectory.leaf] || tree).ends.push(trajectory);
  });
  const order = (item) => item.path ? item.number : Math.min(...item.through, tree.trajectories.length + item.index);
  const arrange = (children, ends) => [...children, ...ends].sort((a, b) => order(a) - order(b));
  tree.spans.forEach((span) => { span.items = arrange(span.children, span.ends); });
  tree.items = arrange(tree.spans.filter((span) => !tree.spans[span.parent]), tree.ends);
  tree.rows = [];
  const place = (item) => {
    item.row = tree.rows.length;
    if (item.path) { tree.rows.push(item); return; }
    if (!item.items.length) tree.rows.push(null);
    item.items.forEach(place);
  };
  tree.items.forEach(place);
  tree.helped = tree.spans.some((span) => span.interventions);
  const entropies = tree.spans.flatMap((span) => span.entropies || []).filter(known).sort((a, b) => a - b);
  tree.most = Math.max(100, entropies[Math.floor(0.98 * entropies.length)] || 0) / 1000;
  return tree;
}

/* Sets x and w of the spans so that the longest path fits into `width`, if it can, and returns [width, scale]. */
function spread(tree, width) {
  const reach = (scale) => {
    let most = 0;
    tree.spans.forEach((span) => {
      const parent = tree.spans[span.parent];
      span.w = Math.max(LEAST[span.kind] || 30, span.n * scale);
      span.x = parent ? parent.x + parent.w + (parent.decision || parent.items.length > 1 ? FORK : GAP) : PROMPT + 16;
      most = Math.max(most, span.x + span.w);
    });
    return most + 22;
  };
  let low = 0.05, high = 5;
  if (reach(high) <= width) return [width, high];
  for (let round = 0; round < 24; round += 1) {
    const middle = (low + high) / 2;
    if (reach(middle) <= width) low = middle; else high = middle;
  }
  return [Math.max(width, reach(low)), low];
}
