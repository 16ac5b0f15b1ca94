/* ---- rows and trees: unpacked when they are needed ------------------------------------------------------- */

const unitsOf = data.runs.map(() => []);

async function unpack(id) {
  const element = $(id);
  if (!element) return null;
  const bytes = Uint8Array.from(atob(element.textContent), (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}
async function ask(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`the server of this page answered ${answer.status}: ${clip(await answer.text(), 200)}`);
  return answer.json();
}

async function loadRows(run) {
  const packed = data.served ? await ask(`rows?run=${run}`) : await unpack(`rows-${run}`);
  const tasks = packed.tasks.map(([env, id, question, answers, level, index]) => ({ env: packed.envs[env], id, question, answers, level, index }));
  unitsOf[run] = packed.units.map(([model, task, sample, attempt, generated, tree, episodes], number) => ({
    run, number, model: packed.models[model], task: tasks[task], sample, attempt, generated, tree,
    episodes: episodes.map(([score, reward, right, outcome, error, cause, answer, calls, turns, tokens, context, cached, seconds, counted]) => ({
      score, reward, right, outcome: packed.outcomes[outcome], error, cause, answer,
      calls: calls.map(([tool, count]) => [packed.tools[tool], count]), turns, tokens, context, cached, seconds, counted })),
  }));
}

const opened = new Map();  // the last pieces, since neighbours are opened next
function remember(key, value) {
  opened.set(key, value);
  if (opened.size > 12) opened.delete(opened.keys().next().value);
  return value;
}
async function loadTree(unit) {
  if (unit.tree === null) return null;
  const place = data.served ? 0 : unit.tree % data.piece;
  const key = data.served ? `tree?run=${unit.run}&at=${unit.tree}` : `trees-${unit.run}-${Math.floor(unit.tree / data.piece)}`;
  const piece = opened.get(key) || remember(key, data.served ? ask(key).then((tree) => [tree]) : unpack(key));
  try {
    return ((await piece) || [])[place] || null;
  } catch (error) {
    opened.delete(key);
    throw error;
  }
}

/* What is listed: one sample, or all samples of a task by one model. */
function item(units) {
  const [{ task, model, run }] = units, episodes = units.flatMap((unit) => unit.episodes.map((episode) => ({ ...episode, unit })));
  unitNumbers(units, episodes);
  const scored = episodes.filter((episode) => episode.right !== null && episode.counted), right = scored.filter((episode) => episode.right).length;
  const calls = new Map();
  episodes.forEach((episode) => episode.calls.forEach(([tool, count]) => calls.set(tool, (calls.get(tool) || 0) + count)));
  const average = (name) => episodes.length ? mean(episodes.map((episode) => episode[name] || 0)) : null;
  const scores = scored.map((episode) => episode.score).filter(known);
  return {
    units, task, model, run, episodes, right, scored: scored.length, broken: episodes.filter((episode) => episode.right === null).length,
    score: scores.length ? mean(scores) : null, calls, turns: average("turns"), tokens: average("tokens"), seconds: average("seconds"),
    called: episodes.length ? [...calls.values()].reduce((sum, count) => sum + count, 0) / episodes.length : 0,
    text: [task.id, task.question, ...task.answers, ...episodes.map((episode) => episode.answer ?? ""), ...episodes.map((episode) => episode.error ?? "")].join("\n").toLowerCase(),
  };
}
function unitNumbers(units, episodes) {
  let at = 0;
  units.forEach((unit) => unit.episodes.forEach((_, number) => { episodes[at].number = number; at += 1; }));
}
function verdictOf(entry) {
  if (!entry.scored) return "void";
  return entry.right === entry.scored ? "right" : entry.right ? "some" : "wrong";
}
const SIGNS = { right: ["✓", "right"], some: ["◐", "partly right"], wrong: ["✗", "wrong"], void: ["!", "not scored"] };

function itemsOf(side, bySample) {
  const units = unitsOf[side.run].filter((unit) => unit.model === side.model);
  if (bySample) return units.map((unit) => item([unit]));
  const groups = new Map();
  units.forEach((unit) => {
    const key = `${unit.task.env}\n${unit.task.id}`;
    if (groups.has(key)) groups.get(key).push(unit); else groups.set(key, [unit]);
  });
  return [...groups.values()].map(item);
}
/* A model of a run. */
function sidesOf() {
  return data.runs.flatMap((run, number) => [...new Set([...unitsOf[number].map((unit) => unit.model)])].map((model) => ({ run: number, model })));
}
const sideName = (side) => data.runs.length > 1 ? `${plain(data.runs[side.run].name)} · ${plain(side.model)}` : plain(side.model);
