// Off loopback the server wants the token that it printed at its start.
import { html, useState } from "../lib/html.js";
import { post } from "../lib/api.js";
import { needsToken } from "../lib/store.js";
import { Brand } from "../parts/icons.js";

export function SignIn() {
  const [token, setToken] = useState(""),
    [error, setError] = useState("");
  async function enter(event) {
    event.preventDefault();
    try {
      await post("api/session", { token });
      needsToken.set(false);
    } catch (refusal) {
      setError(refusal.message);
    }
  }
  return html`<main class="card sign-in">
    <div class="brand"><${Brand} />Fencepost</div>
    <h1>Token needed</h1>
    <p>The command that serves this page printed an address with a token when it started.</p>
    <form onSubmit=${enter}>
      <label>Token<input type="password" autocomplete="off" value=${token}
        onInput=${(event) => setToken(event.target.value)} required /></label>
      <p class="error" role="alert">${error}</p>
      <button class="button primary" type="submit">Enter</button>
    </form>
  </main>`;
}
