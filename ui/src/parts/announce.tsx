// The live region: what screen readers say when something happens away from the focus.
import { signal } from "@preact/signals";
import type { JSX } from "preact";

const said = signal("");

export function announce(text: string): void {
  // A text that is equal to the last one would not be read again.
  said.value = said.peek() === text ? `${text}\u00a0` : text;
}

export function Announcer(): JSX.Element {
  return (
    <div class="offscreen" role="status" aria-live="polite">
      {said.value}
    </div>
  );
}
