import type { Privacy } from "./with-privacy.ts";
import { FAILED, FOUND } from "../exit-codes.ts";

type Answer<Name extends "reapply" | "rewrap"> = Awaited<ReturnType<Privacy[Name]>>;

/** What an action has to say: to a script, to people, and by its exit code. */
export interface ActionOutput {
  readonly value: unknown;
  readonly text: string;
  readonly code?: number;
}

export function holdOutput(held: boolean): ActionOutput {
  const text = held ? "Held: nobody can erase this person until it is released." : "It was held already.";
  return { value: { held }, text };
}

export function releaseOutput(released: boolean): ActionOutput {
  const text = released
    ? "Released: this person can be erased again."
    : "Nothing to release: there is no hold.";
  return { value: { released }, text };
}

export function rewrapOutput(value: Answer<"rewrap">): ActionOutput {
  const { rewrapped, left } = value;
  const rest =
    left === 0
      ? "Nothing is wrapped by an older key any more: it can be taken out of the ring."
      : `${left} are left: run it again before an older key is taken out of the ring.`;
  return { value, text: `${rewrapped} data key(s) rewrapped with the current key. ${rest}` };
}

export function reapplyOutput(value: Answer<"reapply">): ActionOutput {
  const { erasures, keysDestroyed, refused } = value;
  const done = `${erasures} erasure(s) applied again, ${keysDestroyed} key(s) that were back destroyed.`;
  if (refused === 0) return { value, text: done };
  const why = "their proof does not hold, or was made with another index key of the ring";
  return {
    value,
    text: `${done}\n${refused} line(s) refused: ${why}. Nothing was done for them.`,
    code: FOUND,
  };
}

export function endSagaOutput(ended: boolean): ActionOutput {
  if (ended) return { value: { ended }, text: "Ended as it was; nothing was undone." };
  const text = "Nothing was ended: there is no saga of this id that is parked because its person was erased.";
  return { value: { ended }, text, code: FAILED };
}

/** The keys and what was done with them, for people. */
export function privacyText(seen: Awaited<ReturnType<Privacy["status"]>>): string {
  const { currentKey, keys, destroyed, erasures, unswept, holds, cacheTtlMs } = seen;
  const wrapped = Object.entries(keys).map(([name, count]) => `${count} by ${name}`);
  const facts: readonly (readonly [string, string])[] = [
    ["current key", currentKey],
    [
      "data keys",
      `${wrapped.length === 0 ? "none yet" : `wrapped: ${wrapped.join(", ")}`}; ${destroyed} destroyed`,
    ],
    ["erasures", `${erasures}, of which ${unswept} are not swept yet (unswept)`],
    ["holds", String(holds)],
    ["key cache", `other processes forget a destroyed key within ${cacheTtlMs / 1_000} s`],
  ];
  return facts.map(([name, text]) => `${name.padEnd(11)}  ${text}`).join("\n");
}
