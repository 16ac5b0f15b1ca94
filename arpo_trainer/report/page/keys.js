/* ---- keys ------------------------------------------------------------------------------------------------- */

const KEYS = [["j, ↓", "next task"], ["k, ↑", "previous task"], ["Enter", "open the task"], ["Escape", "close it"], ["/", "search"], ["t", "conversation or tree"],
  ["n, p", "next or previous sample"], ["h", "entropies"], ["r", "raw text, with the tags"], ["?", "this list"]];

function showHelp() {
  $("help").replaceChildren(h("h2", { id: "help-title" }, "Keys"), h("dl", { class: "keys-list" }, KEYS.map(([key, use]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, use)))),
    h("p", { class: "hint" }, "In the list also Page Up, Page Down, Home and End. In a tree the arrows walk along the spans."),
    h("button", { type: "button", class: "word", autofocus: true, onclick: () => $("help").close() }, "Close"));
  $("help").showModal();
}
function otherSample(way) {
  shown.sides.forEach((side, number) => { if (side) shown.at[number] = (shown.at[number] + way + side.episodes.length) % side.episodes.length; });
  drawDetail();
}
function keys() {
  addEventListener("keydown", (event) => {
    const typing = event.target.closest && event.target.closest("input, select, textarea");
    if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
    if (typing) {
      if (event.key === "Escape" && typing === controls.search && !controls.search.value) grid.box.focus();
      if (event.key === "Enter" && typing === controls.search) grid.box.focus();
      return;
    }
    const inDetail = $("detail").open;
    const act = {
      j: () => inDetail ? step(1) : go(1), k: () => inDetail ? step(-1) : go(-1), "?": showHelp,
      "/": () => { if (inDetail) closeDetail(); controls.search.focus(); controls.search.select(); },
      ...(inDetail ? { t: () => { shown.tab = shown.tab === "tree" ? "conversation" : "tree"; drawDetail(); }, h: () => { reading.heat = !reading.heat; drawDetail(); },
        r: () => { reading.raw = !reading.raw; drawDetail(); }, n: () => otherSample(1), p: () => otherSample(-1) }
        : event.target === document.body ? { ArrowDown: null, Enter: null } : {}),
    }[event.key];
    if (act) { act(); event.preventDefault(); }
  });
  $("detail").addEventListener("close", () => { if (grid.box) grid.box.focus({ preventScroll: true }); });
}
function go(way) {
  if (!grid.box) return;
  const begun = document.activeElement === grid.box;
  grid.box.focus();
  moveTo(begun ? listing.at + way : listing.at);
}
