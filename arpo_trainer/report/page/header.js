/* ---- header ----------------------------------------------------------------------------------------------- */

const linked = (text) => /^https?:\/\//.test(text) ? h("a", { href: text, rel: "noreferrer" }, text) : text;

function header() {
  $("name").textContent = plain(facts.name);
  const status = facts.status || "status unknown";
  const entries = [
    ["environment", facts.env && (facts.env.id || plain(facts.env))],
    ["model", facts.model],
    ["algorithm", facts.algorithm && String(facts.algorithm).toUpperCase()],
    ["started", moment(facts.started)],
    facts.status === "running" ? ["so far", duration((Date.parse(data.written) - Date.parse(facts.started)) / 1000)]
      : ["took", duration(facts.seconds)],
    ["sandbox", facts.isolation],
    ...Object.entries(facts.trackers || {}).map(([name, place]) => [`logged to ${name}`, place]),
  ];
  $("facts").append(
    h("li", { class: `status status-${/^[a-z]+$/.test(status) ? status : "other"}` }, status),
    ...entries.filter(([, value]) => value).map(([name, value]) =>
      h("li", {}, h("span", { class: "key" }, name, " "), h("bdi", {}, linked(plain(value))))),
  );
  const notes = data.notes.length ? [data.notes.join(" ")] : [];
  if (facts.status === "running") {
    notes.unshift(`The run was still going when this page was written (${moment(data.written)}).`);
  }
  if (notes.length) $("notes").append(...notes.map((note) => h("p", { class: "note" }, note)));
  $("foot").textContent = `Written ${moment(data.written)}. One file; it loads nothing.`;
}
