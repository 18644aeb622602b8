// Light, dark, or as the system says. Charts ask for the colours anew when it changes.
import { store } from "./store.js";

const KEY = "fencepost.theme";
const dark = matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement;

const present = () => root.dataset.theme || (dark.matches ? "dark" : "light");
export const theme = store(present());

export function toggleTheme() {
  const next = present() === "dark" ? "light" : "dark";
  root.dataset.theme = next;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    /* storage may be forbidden */
  }
  theme.set(next);
}
dark.addEventListener("change", () => theme.set(present()));

/** The value of a colour of style/tokens.css, as the canvas needs it. */
export const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
