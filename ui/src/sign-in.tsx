// Signing in: by the one-time link that the start printed, or with a token.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { signIn, signInProblem } from "./session.ts";
import { Command } from "./parts/text.tsx";

export function SignInPage(): JSX.Element {
  const [token, setToken] = useState("");
  const [isWaiting, setWaiting] = useState(false);
  useEffect(() => {
    document.title = "Sign in · sagabox";
  }, []);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setWaiting(true);
    await signIn({ token: token.trim() });
    setWaiting(false);
    setToken("");
  };
  return (
    <main class="start">
      <div class="panel sign-in">
        <div class="brand">
          <span class="mark" aria-hidden="true" />
          <span>sagabox</span>
        </div>
        <h1>Sign in</h1>
        {signInProblem.value !== undefined && (
          <p class="box" role="alert">
            {signInProblem.value}
          </p>
        )}
        <form onSubmit={(event) => void submit(event)}>
          <label class="field">
            <span>Token</span>
            <input
              type="password"
              required
              value={token}
              autocomplete="current-password"
              onInput={(event) => setToken(event.currentTarget.value)}
            />
          </label>
          <button type="submit" class="btn primary" disabled={isWaiting}>
            {isWaiting ? "Waiting for the server…" : "Sign in"}
          </button>
        </form>
        <p class="muted">
          On your own computer you need no token: the start prints a link that works once. For a new link,
          start it again:
        </p>
        <Command text="sagabox dashboard" />
      </div>
    </main>
  );
}
