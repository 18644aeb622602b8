// Runs before the first paint, so that nothing flashes: the theme that was chosen, or else the system's.
{
  let chosen = null;
  try {
    chosen = localStorage.getItem("fencepost.theme");
  } catch {
    /* storage may be forbidden */
  }
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  document.documentElement.dataset.theme = chosen === "light" || chosen === "dark" ? chosen : system;
}
