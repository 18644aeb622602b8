// The keyboard: `/` search, j and k rows, Enter opens, Esc back, digits views, `?` help. Focus is the selection, so
// what the eye sees, what a screen reader says and what Enter opens are one thing.
const isTyping = (target) =>
  target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));

function moveRow(step) {
  const rows = [...document.querySelectorAll("main [data-row]")].filter((row) => row.offsetParent !== null);
  if (!rows.length) return false;
  const at = rows.indexOf(document.activeElement?.closest?.("[data-row]") ?? document.activeElement);
  const next = rows[Math.min(rows.length - 1, Math.max(0, at === -1 ? (step > 0 ? 0 : rows.length - 1) : at + step))];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
  return true;
}

export function listen(actions) {
  function pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const typing = isTyping(event.target);
    if (event.key === "Escape") {
      if (typing) event.target.blur();
      else actions.back();
      return;
    }
    if (typing) return;
    let done = true;
    if (event.key === "/") {
      const search = document.querySelector("main input[type=search]");
      if (search) {
        search.focus();
        search.select();
      } else actions.search();
    } else if (event.key === "j") done = moveRow(1);
    else if (event.key === "k") done = moveRow(-1);
    else if (event.key === "?") actions.help();
    else if (/^[1-6]$/.test(event.key)) actions.go(Number(event.key) - 1);
    else done = false;
    if (done) event.preventDefault();
  }
  addEventListener("keydown", pressed);
  return () => removeEventListener("keydown", pressed);
}
