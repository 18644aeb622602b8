// Light, dark, or as the system says. Charts ask for the colours anew when it changes.
import { store } from "./store.js";

const KEY = "fencepost.theme";
const root = document.documentElement; // theme_early.js has said which it is

export const theme = store(root.dataset.theme);

function show(next) {
  root.dataset.theme = next;
  theme.set(next);
}

function chosen() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // storage may be forbidden
  }
}

export function toggleTheme() {
  show(root.dataset.theme === "dark" ? "light" : "dark");
  try {
    localStorage.setItem(KEY, root.dataset.theme);
  } catch {
    /* then for this page only */
  }
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (system) => {
  if (!chosen()) show(system.matches ? "dark" : "light");
});

/** The value of a colour of style/tokens.css, as the canvas needs it. */
export const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
