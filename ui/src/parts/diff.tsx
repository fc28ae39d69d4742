// Two texts, line by line. What changed is marked by sign as well as by colour.
import type { JSX } from "preact";
import type { DiffLine } from "../json-text.ts";

const SIGNS: Readonly<Record<DiffLine["kind"], string>> = { same: " ", removed: "−", added: "+" };
const WORDS: Readonly<Record<DiffLine["kind"], string>> = {
  same: "",
  removed: "removed: ",
  added: "added: ",
};

export function Diff({ lines }: { lines: readonly DiffLine[] }): JSX.Element {
  const changed = lines.filter(({ kind }) => kind !== "same").length;
  return (
    <>
      <p class="muted small">{changed === 0 ? "Both are equal." : `${changed} lines differ.`}</p>
      <div class="diff" tabIndex={0} role="group" aria-label="Differences">
        {lines.map(({ kind, text }, index) => (
          <div key={index} class={kind}>
            <span aria-hidden="true">{SIGNS[kind]} </span>
            <span class="offscreen">{WORDS[kind]}</span>
            {text}
          </div>
        ))}
      </div>
    </>
  );
}
