// A modal dialog: the browser keeps the focus inside, closes it with Esc and gives the focus back.
import { html, useLayoutEffect, useRef } from "../lib/html.js";

export function Dialog({ title, close, children, footer }) {
  const place = useRef(null);
  useLayoutEffect(() => {
    const element = place.current;
    element.showModal();
    element.addEventListener("close", close);
    return () => {
      element.removeEventListener("close", close);
      element.close();
    };
  }, []);
  return html`<dialog ref=${place} aria-labelledby="dialog-title">
    <header><h2 id="dialog-title">${title}</h2></header>
    <div class="body">${children}</div>
    <footer>${footer}</footer>
  </dialog>`;
}
