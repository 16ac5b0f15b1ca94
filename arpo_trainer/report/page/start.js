/* ---- start ------------------------------------------------------------------------------------------------ */

function broken(name, error) {
  document.documentElement.dataset.broken = `${name}: ${error.message}`;
  $("notes").append(h("p", { class: "note alarm" }, `A part of this page could not be drawn (${name}: ${error.message}).`));
}
function attempt(...steps) {
  for (const part of steps) { try { part(); } catch (error) { broken(part.name, error); } }
}

async function reload() {
  const fresh = await ask("state");
  Object.assign(data, { runs: fresh.runs, pairs: fresh.pairs, written: fresh.written });
  await Promise.all(data.runs.map((_, run) => loadRows(run)));
  held.clear();
  const focused = controls.search && document.activeElement === controls.search;
  attempt(header, overview, comparison, filters);
  refresh(true);
  if (focused) controls.search.focus();
  again();
}
/* While a run goes on its page is read again. */
function again() {
  if (data.served && data.runs.some((run) => run.facts.status === "running")) setTimeout(() => $("detail").open ? again() : reload().catch((error) => broken("reload", error)), 10000);
}

async function start() {
  attempt(header, overview, setup, keys);
  try {
    await Promise.all(data.runs.map((_, run) => loadRows(run)));
    const sides = sidesOf();
    if (data.runs.length > 1 && sides.length > 1) Object.assign(want, { mode: "pairs", a: 0, b: Math.max(1, sides.findIndex((side) => side.run === 1)) });
    attempt(comparison, filters, refresh);
  } catch (error) {
    broken("rows", error);
  }
  placed = true;
  redraws.forEach((draw) => draw());
  document.documentElement.dataset.ready = "yes";
  again();
}
start();
