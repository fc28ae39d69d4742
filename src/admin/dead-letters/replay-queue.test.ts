import { expect, test } from "vitest";
import { streamFor } from "../../message/index.ts";
import { ReplayQueue, type ReadCandidates } from "./group-replay.ts";
import type { Candidate } from "./replay-dead-letters.ts";

const aLetter = (n: number, key: string | null, waits = false): Candidate => ({
  id: String(n),
  message_id: `m-${n}`,
  topic: "t",
  key,
  place: String(n),
  written_at: "2026-01-01T00:00:00Z",
  waits,
});

function lineOf(letters: readonly Candidate[]) {
  const reads: string[] = [];
  const read: ReadCandidates = async (after, limit) => {
    reads.push(after.place);
    return letters.filter(({ place }) => Number(place) > Number(after.place)).slice(0, limit);
  };
  return { line: new ReplayQueue(read), reads };
}

const ids = (letters: readonly Candidate[]) => letters.map(({ id }) => id);
const none: ReadonlySet<string> = new Set();

test("of each key one goes, and what had to wait is not overtaken in the same pass", async () => {
  const { line } = lineOf([1, 2, 3].map((n) => aLetter(n, "a")).concat(aLetter(4, "b"), aLetter(5, null)));
  expect(ids(await line.take(2, none, false))).toEqual(["1", "4"]);
  expect(ids(await line.take(2, none, false))).toEqual(["5"]);
  expect(await line.take(2, none, false)).toEqual([]);
  expect(line.isOver(3)).toBe(true);
  line.restart();
  expect(ids(await line.take(9, new Set([streamFor("t", "a")]), false))).toEqual(["4", "5"]);
});

test("a run of one key goes together, up to the first that must wait", async () => {
  const { line } = lineOf([aLetter(1, "a"), aLetter(2, "a"), aLetter(3, "a", true), aLetter(4, "a")]);
  expect(ids(await line.take(9, none, true))).toEqual(["1", "2"]);
});

test("behind a hot key on its way a pass ends early, and what was read costs no second look", async () => {
  const { line, reads } = lineOf(Array.from({ length: 50_000 }, (_, n) => aLetter(n, "hot")));
  expect(await line.take(5, none, true)).toHaveLength(5);
  const moving = new Set([streamFor("t", "hot")]);
  for (let n = 0; !line.isOver(5) && n < 1_000; n++) expect(await line.take(5, moving, true)).toEqual([]);
  expect(reads.length).toBeLessThan(8);
  line.restart();
  expect(await line.take(5, none, true)).toHaveLength(5);
});
