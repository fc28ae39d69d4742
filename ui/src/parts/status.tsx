// Status by word and shape. Colour only repeats what both say.
import type { JSX } from "preact";
import { spaced } from "../format.ts";

export type Tone = "ok" | "warn" | "bad" | "busy" | "idle";

const TONES: Readonly<Record<string, Tone>> = {
  completed: "ok",
  sent: "ok",
  done: "ok",
  handled: "ok",
  processed: "ok",
  kept: "ok",
  live: "ok",
  replayed: "ok",
  settled: "ok",
  failed: "bad",
  dead: "bad",
  dead_letter: "bad",
  broken: "bad",
  poison: "bad",
  incident: "bad",
  rejected: "bad",
  exhausted: "bad",
  open: "bad",
  error: "bad",
  lost: "bad",
  held: "warn",
  stopped: "warn",
  stopping: "warn",
  compensating: "warn",
  compensated: "warn",
  buried: "warn",
  expired: "warn",
  refused: "warn",
  unclaimed: "warn",
  slow: "warn",
  warning: "warn",
  polling: "warn",
  paused: "warn",
  "half-open": "warn",
  "not running": "warn",
  incomplete: "warn",
  interrupted: "warn",
  "unknown yet": "warn",
  running: "busy",
  in_progress: "busy",
  claimed: "busy",
  optimistic: "busy",
  connecting: "busy",
};

export function toneOf(word: string): Tone {
  return TONES[word.toLowerCase()] ?? TONES[word.toLowerCase().replaceAll(" ", "_")] ?? "idle";
}

const SHAPES: Readonly<Record<Tone, JSX.Element>> = {
  ok: <path d="M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1Zm3.6 5.2-4.3 4.6L4.5 8.2" />,
  warn: <path d="M8 1.5 15.2 14H.8L8 1.5Zm0 4.3v4M8 11.7v.6" />,
  bad: <path d="M5.1 1h5.8L15 5.1v5.8L10.900 15H5.100L1 10.900V5.100L5.100 1Zm.4 4.500 5 5m0-5-5 5" />,
  busy: <path d="M8 1a7 7 0 1 1-7 7M8 4.500V8l2.500 2" />,
  idle: <path d="M8 1.500a6.500 6.500 0 1 0 0 13 6.500 6.500 0 0 0 0-13Z" />,
};

export function Shape({ tone }: { tone: Tone }): JSX.Element {
  return (
    <svg class={`shape ${tone}`} viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
      {SHAPES[tone]}
    </svg>
  );
}

/** A status word with its shape. */
export function Status({
  word,
  tone = toneOf(word),
}: {
  word: string;
  tone?: Tone | undefined;
}): JSX.Element {
  return (
    <span class={`status ${tone}`}>
      <Shape tone={tone} />
      <span>{spaced(word)}</span>
    </span>
  );
}
